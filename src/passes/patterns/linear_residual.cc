// SPDX-License-Identifier: Apache-2.0
// LinearResidual: what is added to a product is added to its sums before they are stored.
#include <unordered_set>

#include "passes/patterns/product_util.h"

namespace atb {
namespace {

std::optional<Mismatch> check_types(const Match& match) {
  const Type& product = match.value("product")->type();
  const Type& residual = match.value("residual")->type();
  const bool one_shape = equal(product.shape, residual.shape) == Tri::kYes;
  if (one_shape && product.dtype == residual.dtype) return std::nullopt;
  return Mismatch{match.node("sum"), residual.str(), product.str() + " as the product"};
}

// True if `value` cannot be computed before `maker` has run.
bool waits_for(const Value* value, const Node* maker) {
  const Graph* graph = maker->graph();
  std::unordered_set<const Node*> seen;
  std::vector<const Value*> open = {value};
  while (!open.empty()) {
    const Node* node = open.back()->producer();
    open.pop_back();
    if (node == maker) return true;
    if (node == nullptr || graph->position(node) < graph->position(maker) || !seen.insert(node).second) continue;
    for (const Value* input : node->inputs()) {
      if (input != nullptr) open.push_back(input);
    }
  }
  return false;
}

// The product would wait for a residual from another branch, which now runs beside it.
std::optional<Mismatch> check_known(const Match& match) {
  const Value* residual = match.value("residual");
  if (residual->producer() == nullptr || waits_for(match.value("x"), residual->producer())) return std::nullopt;
  return Mismatch{match.node("sum"), "%" + residual->name() + " of another branch",
                  "a value that %" + match.value("x")->name() + " is computed from"};
}

void rewrite(const Match& match, Rewriter& rewriter) {
  FusedLinear fused(*match.node("product"));
  fused.residual = match.value("residual");
  rewriter.replace(match.value("sum"), fused.build(rewriter)->output());
}

}  // namespace

// After AddNorm, which takes a sum that a norm reads.
void register_pattern_linear_residual(PatternRegistry& registry) {
  Pattern p("LinearResidual", "FusedLinear", 40, PatternGroup::kFurther);
  p.root(p.commutative(p.op("sum", {"add"}, {product(p, {"linear", "fused_linear"}, p.any("x")), p.any("residual")})));
  require_one_output(p);
  require_no_residual(p);
  p.where("operands of one type", check_types);
  p.where("a residual that is there before the product", check_known);
  p.rewrite(rewrite);
  p.rare();
  registry.add(std::move(p));
}

}  // namespace atb
