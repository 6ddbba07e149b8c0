// SPDX-License-Identifier: Apache-2.0
// LinearActivation: the activation of a product is applied to its sums before they are stored.
#include "passes/patterns/product_util.h"

namespace atb {
namespace {

void rewrite(const Match& match, Rewriter& rewriter) {
  FusedLinear fused(*match.node("product"));
  fused.activation = activation_name(*match.node("activation"));
  rewriter.replace(match.value("activation"), fused.build(rewriter)->output());
}

}  // namespace

// After GateUp, which takes an activation that is multiplied by another product.
void register_pattern_linear_activation(PatternRegistry& registry) {
  Pattern p("LinearActivation", "FusedLinear", 50, PatternGroup::kFurther);
  p.root(p.op("activation", {"silu", "gelu", "relu"}, {product(p, {"linear", "fused_linear"}, p.any("x"))}));
  require_one_output(p);
  require_no_activation(p);
  require_no_residual(p);
  p.rewrite(rewrite);
  p.rare();
  registry.add(std::move(p));
}

}  // namespace atb
