// SPDX-License-Identifier: Apache-2.0
// merged_matmul: several linears on one input, as one product with their weights one below the other.
#include "ops/linear_util.h"
#include "ops/matmul_kernel.h"

namespace atb {
namespace {

std::vector<Value*> decompose_merged_matmul(Builder& b, std::span<Value* const> inputs, const Attrs& attrs) {
  return split_linears(b, inputs[0], inputs[1], inputs.size() > 2 ? inputs[2] : nullptr,
                       attrs.get<std::vector<int64_t>>("splits"));
}

}  // namespace

void register_op_merged_matmul(OpRegistry& registry) {
  OpDef op;
  op.name = "merged_matmul";
  op.doc = "Linears with weights w[N1 + N2 + ..., K] below each other, read in one pass over x: one output a split.";
  op.inputs = {{"x"}, {"w"}, {"bias", true}};
  op.outputs = {{"out"}};
  op.attrs = {{"splits", AttrKind::kInts, std::vector<int64_t>(), true, "features of each output, in order"}};
  op.fused = true;
  op.infer = infer_split_linears;
  op.flops = linear_flops;
  op.decompose = decompose_merged_matmul;
  op.make_cpu_kernel = [](const KernelRequest& request) {
    return make_matmul_kernel(request,
                              {.splits = request.node.attrs().get<std::vector<int64_t>>("splits"), .norm = {}});
  };
  registry.add(std::move(op));
}

}  // namespace atb
