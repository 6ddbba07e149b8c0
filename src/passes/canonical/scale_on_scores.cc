// SPDX-License-Identifier: Apache-2.0
// Normal form: a scale on a factor of a matmul goes onto the product, where SDPA looks for it: (c q) k^T = c (q k^T).
// For powers of two the same bits; else a rounding elsewhere. Two scales in a row become one.
#include "passes/analysis/scalar.h"
#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"

namespace atb {
namespace {

// A factor without its scale, seen through views that nothing else reads.
struct Unscaled {
  Value* value = nullptr;  // null: there is no scale
  double factor = 1;
};

Unscaled unscaled(Value* value, Rewriter& rewriter) {
  std::vector<const Node*> views;
  Value* at = value;
  while (read_once(at)) {
    if (const std::optional<Scaled> scaled = scaled_by_scalar(at)) {
      Value* result = scaled->x;
      for (auto view = views.rbegin(); view != views.rend(); ++view) {
        result = rewriter.value((*view)->op_name(), {result}, (*view)->attrs());
      }
      return {result, scaled->factor};
    }
    const Node* view = at->producer();
    if (view == nullptr || (!view->is("reshape") && !view->is("transpose") && !view->is("broadcast"))) break;
    views.push_back(view);
    at = view->input(0);
  }
  return {};
}

}  // namespace

bool scale_on_scores(const Node& node, Rewriter& rewriter) {
  if (!is_float(node.output()->type().dtype)) return false;
  double factor = 1;
  std::vector<Value*> inputs = node.inputs();
  bool any = false;
  for (Value*& input : inputs) {
    const Unscaled without = unscaled(input, rewriter);
    if (without.value == nullptr) continue;
    input = without.value;
    factor *= without.factor;
    any = true;
  }
  if (!any) return false;
  Value* product = rewriter.value("matmul", inputs, node.attrs());
  Value* scale = rewriter.constant(scalar_constant(product->type().dtype, factor, "scale"));
  return pass_through(node, rewriter.value("mul", {product, scale}), rewriter);
}

bool scale_of_scale(const Node& node, Rewriter& rewriter) {
  if (!is_float(node.output()->type().dtype)) return false;
  const std::optional<Scaled> outer = scaled_by_scalar(node.output());
  if (!outer || !read_once(outer->x)) return false;
  const std::optional<Scaled> inner = scaled_by_scalar(outer->x);
  if (!inner) return false;
  Value* scale =
      rewriter.constant(scalar_constant(node.output()->type().dtype, outer->factor * inner->factor, "scale"));
  return pass_through(node, rewriter.value("mul", {inner->x, scale}), rewriter);
}

}  // namespace atb
