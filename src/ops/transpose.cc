// SPDX-License-Identifier: Apache-2.0
// transpose: permutes the axes.
#include "ops/infer_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_transpose(const InferArgs& args) {
  const auto& perm = args.attrs.get<std::vector<int64_t>>("perm");
  const Shape& from = args.type(0).shape;
  if (perm.size() != from.size()) {
    args.fail("perm has " + std::to_string(perm.size()) + " axes, x has rank " + std::to_string(from.size()));
  }
  std::vector<bool> seen(perm.size(), false);
  Shape shape;
  for (const int64_t axis : perm) {
    const bool valid = axis >= 0 && axis < static_cast<int64_t>(perm.size()) && !seen[static_cast<size_t>(axis)];
    if (!valid) args.fail("perm is no permutation: axis " + std::to_string(axis));
    seen[static_cast<size_t>(axis)] = true;
    shape.push_back(from[static_cast<size_t>(axis)]);
  }
  return {{args.type(0).dtype, std::move(shape)}};
}

}  // namespace

void register_op_transpose(OpRegistry& registry) {
  OpDef op;
  op.name = "transpose";
  op.doc = "out.shape[i] = x.shape[perm[i]]; a view.";
  op.inputs = {{"x"}};
  op.outputs = {{"out", 0}};
  op.attrs = {{"perm", AttrKind::kInts, std::vector<int64_t>{}, true, "axis of x that becomes axis i"}};
  op.infer = infer_transpose;
  op.reference = reference_kernel([](auto& call) {
    const auto& perm = call.node.attrs().template get<std::vector<int64_t>>("perm");
    const std::vector<int64_t> dense = dense_strides(call.inputs[0]->shape);
    std::vector<int64_t> strides;
    for (const int64_t axis : perm) strides.push_back(dense[static_cast<size_t>(axis)]);
    reference_gather(*call.inputs[0], *call.outputs[0], 0, strides);
  });
  registry.add(std::move(op));
}

}  // namespace atb
