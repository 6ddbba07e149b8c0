// SPDX-License-Identifier: Apache-2.0
// AddNorm: residual add, then RMSNorm or LayerNorm, becomes FusedAddNorm; the sum stays as its second output.
#include "passes/engine/matcher.h"
#include "passes/engine/pattern.h"
#include "passes/engine/rewriter.h"

namespace atb {
namespace {

std::optional<Mismatch> check_shapes(const Match& match) {
  const Value* a = match.value("residual");
  const Value* b = match.value("sublayer");
  if (equal(a->shape(), b->shape()) == Tri::kYes) return std::nullopt;
  return Mismatch{match.node("sum"), to_string(b->shape()), to_string(a->shape()) + " on both sides"};
}

std::optional<Mismatch> check_types(const Match& match) {
  const DType a = match.value("residual")->type().dtype;
  const DType b = match.value("sublayer")->type().dtype;
  if (a == b && is_float(a)) return std::nullopt;
  return Mismatch{match.node("sum"), std::string(dtype_name(a)) + " + " + std::string(dtype_name(b)), "one float type"};
}

std::optional<Mismatch> check_weight(const Match& match) {
  const Dim& width = match.node("norm")->output()->dim(-1);
  for (const char* name : {"weight", "bias"}) {
    const Value* value = match.value(name);
    if (value == nullptr || equal(value->shape(), Shape{width}) == Tri::kYes) continue;
    return Mismatch{match.node("norm"), std::string(name) + " " + to_string(value->shape()),
                    "[" + width.str() + "], the last axis"};
  }
  return std::nullopt;
}

// The residual stream is the operand that no linear has just made; sums are the same either way round.
bool is_sublayer(const Value* value) { return value->producer() != nullptr && value->producer()->is("linear"); }

void rewrite(const Match& match, Rewriter& rewriter) {
  Value* residual = match.value("residual");
  Value* sublayer = match.value("sublayer");
  if (is_sublayer(residual) && !is_sublayer(sublayer)) std::swap(residual, sublayer);
  std::vector<Value*> inputs = {residual, sublayer, match.value("weight")};
  if (match.has("bias")) inputs.push_back(match.value("bias"));
  const Node* norm = match.node("norm");
  Node* fused = rewriter.node(
      "fused_add_norm", inputs,
      {{"eps", norm->attrs().real("eps")}, {"kind", std::string(norm->is("rms_norm") ? "rms" : "layer")}});
  rewriter.replace(match.value("norm"), fused->output(0));
  rewriter.replace(match.value("sum"), fused->output(1));
}

}  // namespace

void register_pattern_add_norm(PatternRegistry& registry) {
  Pattern p("AddNorm", "FusedAddNorm", 100);
  const PatternId sum = p.extra_output(p.op("sum", {"add"}, {p.any("residual"), p.any("sublayer")}));
  p.root(p.op("norm", {"rms_norm", "layer_norm"}, {sum, p.constant("weight"), p.optional(p.constant("bias"))}));
  p.where("operands of one shape", check_shapes);
  p.where("operands of one type", check_types);
  p.where("weight of the last axis", check_weight);
  p.rewrite(rewrite);
  registry.add(std::move(p));
}

}  // namespace atb
