// SPDX-License-Identifier: Apache-2.0
// rotary_kv_append: rotates queries and keys, and writes keys and values straight into the cache.
#include "ir/builder.h"
#include "ops/attention_util.h"
#include "ops/infer_util.h"
#include "ops/kv_append_kernel.h"

namespace atb {
namespace {

std::vector<Type> infer_rotary_kv_append(const InferArgs& args) {
  const int rank = args.inputs[0]->rank();
  if (rank != 3 && rank != 4) args.fail("q is " + args.type(0).str() + "; expected [T, H, D] or [B, T, H, D]");
  for (size_t i = 0; i < 3; ++i) {
    require_float(args, i);
    require_rank(args, i, rank);
  }
  const Shape &q = args.type(0).shape, &k = args.type(1).shape, &v = args.type(2).shape;
  const size_t heads = q.size() - 2;
  for (size_t axis = 0; axis < q.size(); ++axis) {
    require_equal(args, k[axis], v[axis], "extents of k and v");
    if (axis < heads) require_equal(args, q[axis], k[axis], "tokens of q and k");
  }
  require_equal(args, q.back(), k.back(), "head sizes of q and k");
  require_head_groups(args, q[heads], k[heads]);
  require_rotary_tables(args, 0, 3);
  require_state(args, 5);
  return {args.type(0), args.type(5)};
}

std::vector<Value*> decompose_rotary_kv_append(Builder& b, std::span<Value* const> inputs, const Attrs& attrs) {
  const Attrs layout{{"interleaved", attrs.flag("interleaved")}};
  const auto rows = [&](Value* x) {
    return x->rank() == 3 ? x : b.reshape(x, {x->dim(0) * x->dim(1), x->dim(2), x->dim(3)});
  };
  Value* q = b("rotary", {inputs[0], inputs[3], inputs[4]}, layout);
  Value* k = b("rotary", {inputs[1], inputs[3], inputs[4]}, layout);
  return {q, b("kv_append", {rows(k), rows(inputs[2]), inputs[5]}, {{"slot", attrs.integer("slot")}})};
}

// q, k, v, cos and sin read, q' and the rows of K and V written.
Dim rotary_kv_append_bytes(const Node& node) {
  Dim bytes = bytes_of(*node.output(0)) + bytes_of(*node.input(1)) + bytes_of(*node.input(2));
  for (size_t i = 0; i < 5; ++i) bytes = bytes + bytes_of(*node.input(i));
  return bytes;
}

}  // namespace

void register_op_rotary_kv_append(OpRegistry& registry) {
  OpDef op;
  op.name = "rotary_kv_append";
  op.doc =
      "q' = rotary(q, cos, sin); kv' = kv_append(rotary(k, cos, sin), v, kv) for q [T, Hq, D], k and v [T, KV, D], cos "
      "and sin [T, R/2]; or with a batch before them, whose sequences stand one after another in the step, and which "
      "cos and sin may lack. Counts the rows read and written.";
  op.inputs = {{"q"}, {"k"}, {"v"}, {"cos"}, {"sin"}, {"kv"}};
  op.outputs = {{"q", -1, 0}, {"kv"}};
  op.attrs = {{"slot", AttrKind::kInt, int64_t{0}, true, "which of the cache's layers"},
              {"interleaved", AttrKind::kBool, false, false, "pairs are neighbours (2i, 2i + 1)"}};
  op.fused = true;
  op.has_state = true;
  op.infer = infer_rotary_kv_append;
  op.flops = [](const Node& node) {
    return Dim(3) * (num_elements(node.input(0)->shape()) + num_elements(node.input(1)->shape()));
  };
  op.bytes = rotary_kv_append_bytes;
  op.decompose = decompose_rotary_kv_append;
  op.make_cpu_kernel = [](const KernelRequest& request) { return make_kv_append_kernel(request, true); };
  registry.add(std::move(op));
}

}  // namespace atb
