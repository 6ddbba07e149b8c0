// SPDX-License-Identifier: Apache-2.0
// merged_matmul: several linears on one input, as one product with their weights one below the other.
#include "ops/linear_util.h"
#include "ops/matmul_kernel.h"

namespace atb {
namespace {

std::vector<Type> infer_merged_matmul(const InferArgs& args) {
  const Dim features = require_linear_inputs(args);
  const auto& splits = args.attrs.get<std::vector<int64_t>>("splits");
  std::vector<Type> types;
  Dim total(0);
  for (const int64_t split : splits) {
    if (split < 1) args.fail("splits must be positive, not " + std::to_string(split));
    total = total + Dim(split);
    types.push_back(args.type(0));
    types.back().shape.back() = Dim(split);
  }
  if (types.empty()) args.fail("splits is empty: give the features of each output");
  require_equal(args, total, features, "the sum of splits and the rows of w");
  return types;
}

std::vector<Value*> decompose_merged_matmul(Builder& b, std::span<Value* const> inputs, const Attrs& attrs) {
  Value* bias = inputs.size() > 2 ? inputs[2] : nullptr;
  std::vector<Value*> outputs;
  int64_t row = 0;
  for (const int64_t split : attrs.get<std::vector<int64_t>>("splits")) {
    Value* part = bias == nullptr ? nullptr : weight_rows(b, bias, row, split);
    outputs.push_back(b("linear", {inputs[0], weight_rows(b, inputs[1], row, split), part}));
    row += split;
  }
  return outputs;
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
  op.infer = infer_merged_matmul;
  op.flops = linear_flops;
  op.decompose = decompose_merged_matmul;
  op.make_cpu_kernel = [](const KernelRequest& request) {
    return make_matmul_kernel(request, {request.node.attrs().get<std::vector<int64_t>>("splits")});
  };
  registry.add(std::move(op));
}

}  // namespace atb
