// SPDX-License-Identifier: Apache-2.0
// Normal form: operators of rows come before views of whole rows. Graphs that flatten [B, T, D] to [B * T, D] for a
// linear or a norm and back again lose both reshapes: they meet below and cancel.
#include <algorithm>

#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"

namespace atb {
namespace {

// A reshape that leaves the last axis alone.
const Node* reshape_of_rows(const Value* value) {
  const Node* reshape = made_by(value, "reshape");
  if (reshape == nullptr || !is_float(value->type().dtype)) return nullptr;
  const Value* x = reshape->input(0);
  const bool keeps_rows = x->rank() > 0 && value->rank() > 0 && x->dim(-1) == value->dim(-1);
  return keeps_rows ? reshape : nullptr;
}

const Node* transpose_of_rows(const Value* value) {
  const Node* transpose = made_by(value, "transpose");
  if (transpose == nullptr) return nullptr;
  return transpose->attrs().get<std::vector<int64_t>>("perm").back() == value->rank() - 1 ? transpose : nullptr;
}

// `y`, whose rows are those of view's input, seen as `view` sees its input.
Value* viewed(const Node& view, Value* y, Rewriter& rewriter) {
  if (view.is("transpose")) return rewriter.transpose(y, view.attrs().get<std::vector<int64_t>>("perm"));
  Shape shape = view.output()->shape();
  shape.back() = y->dim(-1);
  return rewriter.reshape(y, std::move(shape));
}

// An operand that means the same whatever axes come before the last: a scalar, or a vector of the row's width.
bool fits_any_rows(const Value* value, const Dim& width) {
  return value->rank() == 0 || (value->rank() == 1 && (value->dim(0) == width || value->dim(0) == Dim(1)));
}

// The same where the view also joins features: x [B, T, H, D] -> [B * T, H * D] is [B, T, H * D] for the operator.
bool rows_below_features(const Node& node, Rewriter& rewriter) {
  const Node* reshape = made_by(node.input(0), "reshape");
  if (reshape == nullptr) return false;
  const Shape& from = reshape->input(0)->shape();
  const Shape& to = node.input(0)->shape();
  size_t lead = from.size();  // axes before those that make up a row
  Dim width = 1;
  while (lead > 0 && !(width == to.back())) width = width * from[--lead];
  const bool joins_both = width == to.back() && from.size() - lead >= 2 && lead + 1 > to.size();
  if (!joins_both) return false;
  Shape rows(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(lead));
  rows.push_back(width);
  std::vector<Value*> inputs = node.inputs();
  inputs[0] = rewriter.reshape(reshape->input(0), std::move(rows));
  Value* result = rewriter.value(node.op_name(), inputs, node.attrs());
  return pass_through(node, rewriter.reshape(result, node.output()->shape()), rewriter);
}

}  // namespace

bool view_below_rows(const Node& node, Rewriter& rewriter) {
  const Node* view = reshape_of_rows(node.input(0));
  // Heads are normed before or after they come first; rotary reads them before.
  if (view == nullptr && !node.is("linear")) view = transpose_of_rows(node.input(0));
  if (view == nullptr) return rows_below_features(node, rewriter);
  std::vector<Value*> inputs = node.inputs();
  inputs[0] = view->input(0);
  return pass_through(node, viewed(*view, rewriter.value(node.op_name(), inputs, node.attrs()), rewriter), rewriter);
}

bool view_below_elements(const Node& node, Rewriter& rewriter) {
  const Node* view = nullptr;
  for (const Value* input : node.inputs()) {
    if (view == nullptr) view = reshape_of_rows(input);
  }
  if (view == nullptr || !(view->output()->type() == node.output()->type())) return false;
  std::vector<Value*> inputs;
  for (Value* input : node.inputs()) {
    const Node* other = reshape_of_rows(input);
    const bool alike = other != nullptr && other->output()->shape() == view->output()->shape() &&
                       other->input(0)->shape() == view->input(0)->shape();
    if (!alike && !fits_any_rows(input, node.output()->dim(-1))) return false;
    inputs.push_back(alike ? other->input(0) : input);
  }
  return pass_through(node, viewed(*view, rewriter.value(node.op_name(), inputs, node.attrs()), rewriter), rewriter);
}

}  // namespace atb
