// SPDX-License-Identifier: Apache-2.0
// NormLoad: norms of the heads of q and k go into the load of their blocks, which reads each row anyway.
#include "passes/engine/matcher.h"
#include "passes/engine/pattern.h"
#include "passes/engine/rewriter.h"

namespace atb {
namespace {

std::optional<Mismatch> check_plain(const Match& match) {
  const auto& norm = match.root()->attrs().get<std::string>("norm");
  if (norm == "none") return std::nullopt;
  return Mismatch{match.root(), "norm \"" + norm + "\"", "a load without a norm"};
}

std::optional<Mismatch> check_alike(const Match& match) {
  const Node* q = match.node("q norm");
  const Node* k = match.node("k norm");
  const auto text = [](const Node* node) {
    return node->op_name() + " eps " + std::to_string(node->attrs().real("eps"));
  };
  if (q->op_name() == k->op_name() && q->attrs().real("eps") == k->attrs().real("eps")) return std::nullopt;
  return Mismatch{k, text(k), text(q)};
}

std::optional<Mismatch> check_types(const Match& match) {
  for (const char* name : {"q norm", "k norm"}) {
    const Node* norm = match.node(name);
    const DType in = norm->input(0)->type().dtype;
    const DType out = norm->output()->type().dtype;
    if (in != out) return Mismatch{norm, std::string(dtype_name(in)), std::string(dtype_name(out)) + " as its result"};
  }
  return std::nullopt;
}

void rewrite(const Match& match, Rewriter& rewriter) {
  const Node* norm = match.node("q norm");
  const std::string kind = norm->is("rms_norm") ? "rms" : "layer";
  const Node* load = rewriter.node("qkv_load",
                                   {match.value("q"), match.value("k"), match.value("v"), match.value("q weight"),
                                    match.value("q bias"), match.value("k weight"), match.value("k bias")},
                                   {{"norm", kind}, {"eps", norm->attrs().real("eps")}});
  for (size_t i = 0; i < 3; ++i) rewriter.replace(match.root()->output(i), load->output(i));
}

PatternId normed(Pattern& p, const std::string& name) {
  return p.op(name + " norm", {"rms_norm", "layer_norm"},
              {p.any(name), p.optional(p.any(name + " weight")), p.optional(p.any(name + " bias"))});
}

}  // namespace

void register_pattern_norm_load(PatternRegistry& registry) {
  Pattern p("NormLoad", "QkvLoad", 70);
  const PatternId q = normed(p, "q");
  const PatternId k = normed(p, "k");
  p.root(p.op("load", {"qkv_load"}, {q, k, p.any("v")}));
  p.where("a load without a norm", check_plain);
  p.where("norms alike", check_alike);
  p.where("one type", check_types);
  p.rewrite(rewrite);
  p.rare();
  registry.add(std::move(p));
}

}  // namespace atb
