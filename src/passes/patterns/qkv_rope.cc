// SPDX-License-Identifier: Apache-2.0
// QKV+RoPE: three linears on one x, rotary on two of them, become MergedMatMul and RotaryEmbedding.
#include "passes/engine/pattern.h"
#include "passes/patterns/merge_util.h"

namespace atb {
namespace {

const std::vector<std::string> kLinears = {"q", "k", "v"};

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

std::optional<Mismatch> check_dtypes(const Match& match) {
  for (const std::string& name : kLinears) {
    const DType dtype = match.node(name)->output()->type().dtype;
    if (dtype == match.value("x")->type().dtype) continue;
    return Mismatch{match.node(name), std::string(dtype_name(dtype)),
                    std::string(dtype_name(match.value("x")->type().dtype))};
  }
  return std::nullopt;
}

void rewrite(const Match& match, Rewriter& rewriter) {
  std::vector<int64_t> splits;
  for (const std::string& name : kLinears) splits.push_back(match.node(name)->output()->dim(-1).constant());
  std::vector<Value*> inputs = {match.value("x"), merged_weight(rewriter, match, kLinears)};
  if (Value* bias = merged_bias(rewriter, match, kLinears)) inputs.push_back(bias);
  const Node* merged = rewriter.node("merged_matmul", inputs, {{"splits", splits}});
  for (size_t i = 0; i < kLinears.size(); ++i) {
    rewriter.replace(match.node(kLinears[i])->output(), merged->output(i));
  }
  const Node* rotary =
      rewriter.node("rotary_embedding",
                    {match.value("maybe q norm"), match.value("maybe k norm"), match.value("cos"), match.value("sin")},
                    {{"interleaved", match.node("q rotary")->attrs().flag("interleaved")}});
  rewriter.replace(match.value("q rotary"), rotary->output(0));
  rewriter.replace(match.value("k rotary"), rotary->output(1));
}

PatternId linear(Pattern& p, const std::string& name, PatternId x) {
  return p.extra_output(
      p.op(name, {"linear"}, {x, p.constant(name + " weight"), p.optional(p.constant(name + " bias"))}));
}

// x, or its norm over the last axis.
PatternId maybe_normed(Pattern& p, const std::string& name, PatternId x) {
  const PatternId norm = p.extra_output(p.op(
      name, {"rms_norm", "layer_norm"}, {x, p.optional(p.any(name + " weight")), p.optional(p.any(name + " bias"))}));
  return p.one_of("maybe " + name, {norm, x});
}

// linear -> (norm of all heads) -> heads -> (norm of each head) -> rotary. Every value on the way stays, so all may be
// read elsewhere. A lone head is there without a reshape where x has an axis of one in its place.
PatternId rotated(Pattern& p, const std::string& name, PatternId x, PatternId cos, PatternId sin) {
  const PatternId whole = maybe_normed(p, name + " whole norm", linear(p, name, x));
  const PatternId split = p.extra_output(p.op(name + " split", {"reshape"}, {whole}));
  const PatternId heads = maybe_normed(p, name + " norm", p.one_of("maybe " + name + " split", {split, whole}));
  return p.op(name + " rotary", {"rotary"}, {heads, cos, sin});
}

}  // namespace

void register_pattern_qkv_rope(PatternRegistry& registry) {
  Pattern p("QKV+RoPE", "MergedMatMul+RotaryEmbedding", 400);
  const PatternId x = p.any("x");
  const PatternId cos = p.any("cos");
  const PatternId sin = p.any("sin");
  p.root(rotated(p, "q", x, cos, sin));
  p.root(rotated(p, "k", x, cos, sin));
  p.root(linear(p, "v", x));
  p.where("one rotation layout", check_layout);
  p.where("heads of one size", check_heads);
  p.where("v as wide as k", check_v);
  p.where("one activation type", check_dtypes);
  require_mergeable(p, kLinears);
  p.rewrite(rewrite);
  registry.add(std::move(p));
}

}  // namespace atb
