// SPDX-License-Identifier: Apache-2.0
#include "passes/canonical/slice_util.h"

#include <algorithm>

namespace atb {

size_t axis_of(const Node& node) {
  const int64_t axis = node.attrs().integer("axis");
  return static_cast<size_t>(axis < 0 ? axis + node.input(0)->rank() : axis);
}

Slice slice_of(const Node& slice) {
  const auto& bounds = slice.attrs().get<Shape>("bounds");
  return {axis_of(slice), bounds[0], bounds[1], slice.attrs().integer("step")};
}

Value* rebuilt(Rewriter& rewriter, Value* x, const Slice& slice) {
  if (slice.step == 1 && slice.begin == Dim(0) && slice.end == x->shape()[slice.axis]) return x;
  return rewriter.value(
      "slice", {x},
      {{"axis", static_cast<int64_t>(slice.axis)}, {"bounds", Shape{slice.begin, slice.end}}, {"step", slice.step}});
}

Shape broadcast_shape_of(const std::vector<Value*>& operands) {
  size_t rank = 0;
  for (const Value* operand : operands) rank = std::max(rank, operand->shape().size());
  Shape result(rank, Dim(1));
  for (const Value* operand : operands) {
    const Shape& shape = operand->shape();
    const size_t shift = rank - shape.size();
    for (size_t i = 0; i < shape.size(); ++i) {
      Dim& extent = result[shift + i];
      if (shape[i] == Dim(1) || shape[i] == extent) continue;
      if (!(extent == Dim(1))) return {};
      extent = shape[i];
    }
  }
  return result;
}

}  // namespace atb
