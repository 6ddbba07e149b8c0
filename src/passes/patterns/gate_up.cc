// SPDX-License-Identifier: Apache-2.0
// GateUp: activation(gate linear) * (up linear) on one x becomes FusedGateUp.
#include "passes/engine/pattern.h"
#include "passes/patterns/merge_util.h"
#include "passes/patterns/product_util.h"

namespace atb {
namespace {

const std::vector<std::string> kLinears = {"gate", "up"};

std::optional<Mismatch> check_equal_widths(const Match& match) {
  const Dim& gate = match.node("gate")->output()->dim(-1);
  const Dim& up = match.node("up")->output()->dim(-1);
  if (equal(gate, up) == Tri::kYes) return std::nullopt;
  return Mismatch{match.node("up"), "[" + up.str() + "]", "[" + gate.str() + "] as the gate"};
}

std::optional<Mismatch> check_activation(const Match& match) {
  const std::string name = activation_name(*match.node("activation"));
  if (name != "gelu_none" && name != "gelu_tanh" && match.node("activation")->is("gelu")) {
    return Mismatch{match.node("activation"), "gelu " + match.node("activation")->attrs().text("approximate"),
                    "none or tanh"};
  }
  return std::nullopt;
}

void rewrite(const Match& match, Rewriter& rewriter) {
  std::vector<Value*> inputs = {match.value("x"), merged_weight(rewriter, match, kLinears)};
  if (Value* bias = merged_bias(rewriter, match, kLinears)) inputs.push_back(bias);
  rewriter.replace(
      match.value("product"),
      rewriter.value("fused_gate_up", inputs, {{"activation", activation_name(*match.node("activation"))}}));
}

}  // namespace

void register_pattern_gate_up(PatternRegistry& registry) {
  Pattern p("GateUp", "FusedGateUp", 200);
  const PatternId x = p.any("x");
  const PatternId gate = p.op("gate", {"linear"}, {x, p.constant("gate weight"), p.optional(p.constant("gate bias"))});
  const PatternId activation = p.op("activation", {"silu", "gelu", "relu"}, {gate});
  const PatternId up = p.op("up", {"linear"}, {x, p.constant("up weight"), p.optional(p.constant("up bias"))});
  p.root(p.commutative(p.op("product", {"mul"}, {activation, up})));
  p.where("equal widths of gate and up", check_equal_widths);
  p.where("activation", check_activation);
  require_mergeable(p, kLinears);
  p.rewrite(rewrite);
  registry.add(std::move(p));
}

}  // namespace atb
