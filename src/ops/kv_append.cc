// SPDX-License-Identifier: Apache-2.0
// kv_append: adds the keys and values of a step to the cache.
#include "ops/attention_util.h"
#include "ops/infer_util.h"
#include "ops/kv_append_kernel.h"

namespace atb {
namespace {

std::vector<Type> infer_kv_append(const InferArgs& args) {
  for (size_t i = 0; i < 2; ++i) {
    require_float(args, i);
    require_rank(args, i, 3);
  }
  for (size_t axis = 0; axis < 3; ++axis) {
    require_equal(args, args.type(0).shape[axis], args.type(1).shape[axis], "extents of k and v");
  }
  require_head_groups(args, args.type(0).shape[1], args.type(0).shape[1]);
  require_state(args, 2);
  return {args.type(2)};
}

template <class T>
void append_rows(std::vector<T>& cache, const std::vector<T>& rows, const RefSequence& sequence, int64_t width) {
  const auto past = static_cast<size_t>(sequence.past * width);
  require(cache.size() >= past, Code::kInvalidArgument, "[kv_append] sequence ", sequence.id, " has ",
          cache.size() / static_cast<size_t>(width), " cached positions, the step says ", sequence.past);
  cache.resize(past);  // positions beyond were taken back
  const auto first = rows.begin() + sequence.row_begin * width;
  cache.insert(cache.end(), first, first + sequence.rows * width);
}

template <class T>
void kv_append_reference(RefCall<T>& call) {
  const RefTensor<T>& k = *call.inputs[0];
  const int64_t width = k.shape[1] * k.shape[2];
  if (width == 0) return;
  const int64_t slot = call.node.attrs().integer("slot");
  for (const RefSequence& sequence : reference_sequences(call.sequences, k.shape[0])) {
    auto& entry = call.outputs[0]->state->entries[{slot, sequence.id}];
    append_rows(entry.k, k.f, sequence, width);
    append_rows(entry.v, call.inputs[1]->f, sequence, width);
  }
}

}  // namespace

void register_op_kv_append(OpRegistry& registry) {
  OpDef op;
  op.name = "kv_append";
  op.doc =
      "Adds keys k and values v [T, KV, D] to slot `slot` of the cache, each row at its sequence's next position, "
      "rounded "
      "to the cache's dtype. Counts the rows read and written.";
  op.inputs = {{"k"}, {"v"}, {"kv"}};
  op.outputs = {{"kv"}};
  op.attrs = {{"slot", AttrKind::kInt, int64_t{0}, true, "which of the cache's layers"}};
  op.has_state = true;
  op.infer = infer_kv_append;
  op.flops = [](const Node&) { return Dim(0); };
  op.bytes = [](const Node& node) { return Dim(2) * (bytes_of(*node.input(0)) + bytes_of(*node.input(1))); };
  op.reference = reference_kernel([](auto& call) { kv_append_reference(call); });
  op.make_cpu_kernel = [](const KernelRequest& request) { return make_kv_append_kernel(request, false); };
  registry.add(std::move(op));
}

}  // namespace atb
