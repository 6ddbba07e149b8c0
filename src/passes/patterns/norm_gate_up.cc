// SPDX-License-Identifier: Apache-2.0
// NormGateUp: a norm that only a gated product reads goes into that product.
#include "passes/patterns/product_util.h"

namespace atb {
namespace {

void rewrite(const Match& match, Rewriter& rewriter) {
  const Node* product = match.node("product");
  const Node* norm = match.node("norm");
  Value* fused = rewriter.value("fused_gate_up",
                                {match.value("x"), match.value("weight"), match.value("bias"),
                                 match.value("norm weight"), match.value("norm bias")},
                                {{"activation", product->attrs().text("activation")},
                                 {"norm", norm_kind(*norm)},
                                 {"eps", norm->attrs().real("eps")}});
  rewriter.replace(product->output(), fused);
}

}  // namespace

// After AddNorm, with which a norm of a sum goes.
void register_pattern_norm_gate_up(PatternRegistry& registry) {
  Pattern p("NormGateUp", "FusedGateUp", 60, PatternGroup::kFurther);
  p.root(product(p, {"fused_gate_up"}, norm_to_fold(p)));
  require_norm_folds(p);
  p.rewrite(rewrite);
  p.rare();
  registry.add(std::move(p));
}

}  // namespace atb
