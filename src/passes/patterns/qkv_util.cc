// SPDX-License-Identifier: Apache-2.0
// Projections of q, k and v on one x, as pattern and as one product.
#include "passes/patterns/qkv_util.h"

#include <vector>

#include "passes/patterns/merge_util.h"

namespace atb {
namespace {

const std::vector<std::string> kLinears = {"q", "k", "v"};

// Merged outputs have the type of x.
std::optional<Mismatch> check_dtypes(const Match& match) {
  for (const std::string& name : kLinears) {
    const DType dtype = match.node(name)->output()->type().dtype;
    if (dtype == match.value("x")->type().dtype) continue;
    return Mismatch{match.node(name), std::string(dtype_name(dtype)),
                    std::string(dtype_name(match.value("x")->type().dtype))};
  }
  return std::nullopt;
}

// x, or its norm over the last axis.
PatternId maybe_normed(Pattern& p, const std::string& name, PatternId x) {
  const PatternId norm = p.extra_output(p.op(
      name, {"rms_norm", "layer_norm"}, {x, p.optional(p.any(name + " weight")), p.optional(p.any(name + " bias"))}));
  return p.one_of("maybe " + name, {norm, x});
}

}  // namespace

PatternId projection(Pattern& p, const std::string& name, PatternId x) {
  return p.extra_output(
      p.op(name, {"linear"}, {x, p.constant(name + " weight"), p.optional(p.constant(name + " bias"))}));
}

PatternId projected_heads(Pattern& p, const std::string& name, PatternId x) {
  const PatternId whole = maybe_normed(p, name + " whole norm", projection(p, name, x));
  const PatternId split = p.extra_output(p.op(name + " split", {"reshape"}, {whole}));
  return maybe_normed(p, name + " norm", p.one_of("maybe " + name + " split", {split, whole}));
}

void require_qkv(Pattern& p) {
  p.where("one activation type", check_dtypes);
  require_mergeable(p, kLinears);
}

void merge_qkv(Rewriter& rewriter, const Match& match) {
  std::vector<int64_t> splits;
  for (const std::string& name : kLinears) splits.push_back(match.node(name)->output()->dim(-1).constant());
  std::vector<Value*> inputs = {match.value("x"), merged_weight(rewriter, match, kLinears)};
  if (Value* bias = merged_bias(rewriter, match, kLinears)) inputs.push_back(bias);
  const Node* merged = rewriter.node("merged_matmul", inputs, {{"splits", splits}});
  for (size_t i = 0; i < kLinears.size(); ++i) {
    rewriter.replace(match.node(kLinears[i])->output(), merged->output(i));
  }
}

}  // namespace atb
