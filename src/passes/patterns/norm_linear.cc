// SPDX-License-Identifier: Apache-2.0
// NormLinear: a norm that one product reads goes into that product.
#include "passes/patterns/product_util.h"

namespace atb {
namespace {

void rewrite(const Match& match, Rewriter& rewriter) {
  const Node* product = match.node("product");
  FusedLinear fused(*product);
  fused.x = match.value("x");
  fused.norm_weight = match.value("norm weight");
  fused.norm_bias = match.value("norm bias");
  fused.norm = norm_kind(*match.node("norm"));
  fused.eps = match.node("norm")->attrs().real("eps");
  const Node* made = fused.build(rewriter);
  for (size_t i = 0; i < product->outputs().size(); ++i) rewriter.replace(product->output(i), made->output(i));
}

}  // namespace

// After AddNorm, with which a norm of a sum goes, and after QKV, which leaves one product to read the norm.
void register_pattern_norm_linear(PatternRegistry& registry) {
  Pattern p("NormLinear", "FusedLinear", 60, PatternGroup::kFurther);
  p.root(product(p, {"linear", "merged_matmul", "fused_linear"}, norm_to_fold(p)));
  require_norm_folds(p);
  p.rewrite(rewrite);
  p.rare();
  registry.add(std::move(p));
}

}  // namespace atb
