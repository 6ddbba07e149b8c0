// SPDX-License-Identifier: Apache-2.0
// Normal forms of slices, concatenations and broadcasts: those that give back what they took, or that nobody needs.
#include <algorithm>

#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"
#include "passes/canonical/slice_util.h"

namespace atb {
namespace {

// The operand of `concat` that holds [bounds of the slice] of its result, with the bounds inside it.
struct Part {
  Value* value = nullptr;
  Dim begin, end;
};
Part part_of(const Node& concat, size_t axis, const Slice& slice) {
  Dim first = 0;
  for (Value* value : concat.inputs()) {
    const Dim extent = value->shape()[axis];
    const Dim begin = slice.begin - first;
    const Dim end = slice.end - first;
    if (begin.lower() >= 0 && (extent - end).lower() >= 0) return {value, begin, end};
    first = first + extent;
  }
  return {};
}

}  // namespace

bool whole_slice(const Node& node, Rewriter& rewriter) {
  return slice_of(node).step == 1 && pass_through(node, node.input(0), rewriter);
}

bool slice_of_concat(const Node& node, Rewriter& rewriter) {
  const Slice slice = slice_of(node);
  const Node* concat = made_by(node.input(0), "concat");
  if (concat == nullptr || axis_of(*concat) != slice.axis) return false;
  const Part part = part_of(*concat, slice.axis, slice);
  if (part.value == nullptr) return false;
  return pass_through(node, rebuilt(rewriter, part.value, {slice.axis, part.begin, part.end, slice.step}), rewriter);
}

bool concat_of_slices(const Node& node, Rewriter& rewriter) {
  const size_t axis = axis_of(node);
  std::vector<Value*> parts;
  for (Value* value : node.inputs()) {
    if (!(value->shape()[axis] == Dim(0))) parts.push_back(value);
  }
  if (parts.size() == 1) return pass_through(node, parts[0], rewriter);
  // Neighbours of one source become one slice.
  std::vector<Value*> joined;
  for (Value* value : parts) {
    const Node* after = made_by(value, "slice");
    const Node* before = joined.empty() ? nullptr : made_by(joined.back(), "slice");
    if (before != nullptr && after != nullptr && before->input(0) == after->input(0)) {
      const Slice a = slice_of(*before);
      const Slice b = slice_of(*after);
      if (a.axis == axis && b.axis == axis && a.step == 1 && b.step == 1 && a.end == b.begin) {
        joined.back() = rebuilt(rewriter, before->input(0), {axis, a.begin, b.end, 1});
        continue;
      }
    }
    joined.push_back(value);
  }
  if (joined.size() == node.inputs().size() || joined.empty()) return false;
  if (joined.size() == 1) return pass_through(node, joined[0], rewriter);
  return pass_through(node, rewriter.value("concat", joined, node.attrs()), rewriter);
}

bool needless_broadcast(const Node& node, Rewriter& rewriter) {
  if (pass_through(node, node.input(0), rewriter)) return true;
  const Node* inner = made_by(node.input(0), "broadcast");
  if (inner == nullptr) return false;
  return pass_through(node, rewriter.value("broadcast", {inner->input(0)}, node.attrs()), rewriter);
}

bool broadcast_operand(const Node& node, Rewriter& rewriter) {
  std::vector<Value*> inputs = node.inputs();
  bool any = false;
  for (Value*& input : inputs) {
    const Node* broadcast = made_by(input, "broadcast");
    if (broadcast == nullptr) continue;
    // Taken away one by one: the others may be what gives the result its shape.
    Value* wide = input;
    input = broadcast->input(0);
    const bool same = broadcast_shape_of(inputs) == node.output()->shape();
    if (!same) input = wide;
    any = any || same;
  }
  return any && pass_through(node, rewriter.value(node.op_name(), inputs, node.attrs()), rewriter);
}

}  // namespace atb
