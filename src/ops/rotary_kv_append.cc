// SPDX-License-Identifier: Apache-2.0
// rotary_kv_append: rotates queries and keys, and writes keys and values straight into the cache.
#include "ir/builder.h"
#include "ops/attention_util.h"
#include "ops/infer_util.h"
#include "ops/kv_append_kernel.h"

namespace atb {
namespace {

std::vector<Type> infer_rotary_kv_append(const InferArgs& args) {
  for (size_t i = 0; i < 3; ++i) {
    require_float(args, i);
    require_rank(args, i, 3);
  }
  for (size_t axis = 0; axis < 3; ++axis) {
    require_equal(args, args.type(1).shape[axis], args.type(2).shape[axis], "extents of k and v");
  }
  require_equal(args, args.type(0).shape[0], args.type(1).shape[0], "tokens of q and k");
  require_equal(args, args.type(0).shape[2], args.type(1).shape[2], "head sizes of q and k");
  require_head_groups(args, args.type(0).shape[1], args.type(1).shape[1]);
  require_rotary_tables(args, 0, 3);
  require_state(args, 5);
  return {args.type(0), args.type(5)};
}

std::vector<Value*> decompose_rotary_kv_append(Builder& b, std::span<Value* const> inputs, const Attrs& attrs) {
  const Attrs layout{{"interleaved", attrs.flag("interleaved")}};
  Value* q = b("rotary", {inputs[0], inputs[3], inputs[4]}, layout);
  Value* k = b("rotary", {inputs[1], inputs[3], inputs[4]}, layout);
  return {q, b("kv_append", {k, inputs[2], inputs[5]}, {{"slot", attrs.integer("slot")}})};
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
      "and "
      "sin [T, R/2]. Counts the rows read and written.";
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
