// SPDX-License-Identifier: Apache-2.0
#include "passes/patterns/product_util.h"

namespace atb {
namespace {

std::string text_of(const Node& node, const std::string& attr, const std::string& otherwise) {
  return node.attrs().has(attr) ? node.attrs().text(attr) : otherwise;
}

std::vector<int64_t> splits_of(const Node& product) {
  if (product.is("linear")) return {product.output()->dim(-1).constant()};
  return product.attrs().get<std::vector<int64_t>>("splits");
}

std::optional<Mismatch> check_no_norm(const Match& match) {
  const std::string norm = text_of(*match.node("product"), "norm", "none");
  if (norm == "none") return std::nullopt;
  return Mismatch{match.node("product"), "norm \"" + norm + "\"", "none yet"};
}

// As x alone: a product may also add what it reads.
std::optional<Mismatch> check_norm_read_once(const Match& match) {
  const Node* product = match.node("product");
  for (const Use& use : match.value("norm")->uses()) {
    if (use.node == product && use.index != 0) return Mismatch{product, "its residual too", "one that is x alone"};
  }
  return std::nullopt;
}

}  // namespace

FusedLinear::FusedLinear(const Node& product)
    : x(product.input(0)),
      weight(product.input(1)),
      bias(product.input(2)),
      norm_weight(product.input(3)),
      norm_bias(product.input(4)),
      residual(product.input(5)),
      splits(splits_of(product)),
      norm(text_of(product, "norm", "none")),
      eps(product.attrs().has("eps") ? product.attrs().real("eps") : 0),
      activation(text_of(product, "activation", "none")) {}

Node* FusedLinear::build(Rewriter& rewriter) const {
  return rewriter.node("fused_linear", {x, weight, bias, norm_weight, norm_bias, residual},
                       {{"splits", splits}, {"norm", norm}, {"eps", eps}, {"activation", activation}});
}

std::string activation_name(const Node& activation) {
  if (!activation.is("gelu")) return activation.op_name();
  return "gelu_" + activation.attrs().text("approximate");
}

PatternId product(Pattern& p, std::vector<std::string> ops, PatternId x) {
  return p.op("product", std::move(ops),
              {x, p.constant("weight"), p.optional(p.constant("bias")), p.optional(p.any("norm weight so far")),
               p.optional(p.any("norm bias so far")), p.optional(p.any("residual so far"))});
}

PatternId norm_to_fold(Pattern& p) {
  return p.op("norm", {"rms_norm", "layer_norm"},
              {p.any("x"), p.optional(p.constant("norm weight")), p.optional(p.constant("norm bias"))});
}

void require_norm_folds(Pattern& p) {
  p.where("a product without a norm", check_no_norm);
  p.where("a norm that the product reads as x", check_norm_read_once);
}

std::string norm_kind(const Node& norm) { return norm.is("rms_norm") ? "rms" : "layer"; }

void require_one_output(Pattern& p) {
  p.where("one output", [](const Match& match) -> std::optional<Mismatch> {
    const size_t outputs = match.node("product")->outputs().size();
    if (outputs == 1) return std::nullopt;
    return Mismatch{match.node("product"), std::to_string(outputs) + " outputs", "one"};
  });
}

void require_no_activation(Pattern& p) {
  p.where("a product without an activation", [](const Match& match) -> std::optional<Mismatch> {
    const std::string activation = text_of(*match.node("product"), "activation", "none");
    if (activation == "none") return std::nullopt;
    return Mismatch{match.node("product"), "activation \"" + activation + "\"", "none yet"};
  });
}

void require_no_residual(Pattern& p) {
  p.where("a product without a residual", [](const Match& match) -> std::optional<Mismatch> {
    const Value* residual = match.node("product")->input(5);
    if (residual == nullptr) return std::nullopt;
    return Mismatch{match.node("product"), "residual %" + residual->name(), "none yet"};
  });
}

}  // namespace atb
