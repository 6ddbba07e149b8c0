// SPDX-License-Identifier: Apache-2.0
// QKV: the three linears on one x that an attention without rotary reads become one MergedMatMul.
#include "passes/patterns/qkv_util.h"

namespace atb {

// After SDPA, which makes the attention, and QKV+RoPE, which takes q and k that are rotated.
void register_pattern_qkv(PatternRegistry& registry) {
  Pattern p("QKV", "MergedMatMul", 200, PatternGroup::kFurther);
  const PatternId x = p.any("x");
  const PatternId q = projected_heads(p, "q", x);
  const PatternId k = projected_heads(p, "k", x);
  const PatternId v = projected_heads(p, "v", x);
  p.root(p.op("attention", {"flash_attention"}, {q, k, v, p.optional(p.any("mask"))}));
  require_qkv(p);
  p.rewrite([](const Match& match, Rewriter& rewriter) { merge_qkv(rewriter, match); });
  p.rare();
  registry.add(std::move(p));
}

}  // namespace atb
