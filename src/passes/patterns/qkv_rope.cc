// SPDX-License-Identifier: Apache-2.0
// QKV+RoPE: three linears on one x, rotary on two of them, become MergedMatMul and RotaryEmbedding.
#include "passes/engine/pattern.h"
#include "passes/patterns/qkv_util.h"

namespace atb {
namespace {

std::optional<Mismatch> check_layout(const Match& match) {
  const bool q = match.node("q rotary")->attrs().flag("interleaved");
  const bool k = match.node("k rotary")->attrs().flag("interleaved");
  if (q == k) return std::nullopt;
  return Mismatch{match.node("k rotary"), k ? "interleaved" : "half-split", q ? "interleaved" : "half-split"};
}

std::optional<Mismatch> check_heads(const Match& match) {
  const Shape& q = match.value("q rotary")->shape();
  const Shape& k = match.value("k rotary")->shape();
  bool same = q.size() == k.size() && q.size() >= 3;
  for (size_t i = 0; same && i < q.size(); ++i) {  // all axes but that of heads
    same = i + 2 == q.size() || equal(q[i], k[i]) == Tri::kYes;
  }
  if (same) return std::nullopt;
  return Mismatch{match.node("k rotary"), to_string(k), to_string(q) + " but for the heads"};
}

// Other linears may read x too (a parallel MLP): v is as wide as k and is not rotated.
std::optional<Mismatch> check_v(const Match& match) {
  const Dim& k = match.node("k")->output()->dim(-1);
  const Dim& v = match.node("v")->output()->dim(-1);
  if (equal(k, v) == Tri::kYes) return std::nullopt;
  return Mismatch{match.node("v"), "[" + v.str() + "]", "[" + k.str() + "] as k"};
}

void rewrite(const Match& match, Rewriter& rewriter) {
  merge_qkv(rewriter, match);
  const Node* rotary =
      rewriter.node("rotary_embedding",
                    {match.value("maybe q norm"), match.value("maybe k norm"), match.value("cos"), match.value("sin")},
                    {{"interleaved", match.node("q rotary")->attrs().flag("interleaved")}});
  rewriter.replace(match.value("q rotary"), rotary->output(0));
  rewriter.replace(match.value("k rotary"), rotary->output(1));
}

PatternId rotated(Pattern& p, const std::string& name, PatternId x, PatternId cos, PatternId sin) {
  return p.op(name + " rotary", {"rotary"}, {projected_heads(p, name, x), cos, sin});
}

}  // namespace

void register_pattern_qkv_rope(PatternRegistry& registry) {
  Pattern p("QKV+RoPE", "MergedMatMul+RotaryEmbedding", 400);
  const PatternId x = p.any("x");
  const PatternId cos = p.any("cos");
  const PatternId sin = p.any("sin");
  p.root(rotated(p, "q", x, cos, sin));
  p.root(rotated(p, "k", x, cos, sin));
  p.root(projection(p, "v", x));
  p.where("one rotation layout", check_layout);
  p.where("heads of one size", check_heads);
  p.where("v as wide as k", check_v);
  require_qkv(p);
  p.rewrite(rewrite);
  registry.add(std::move(p));
}

}  // namespace atb
