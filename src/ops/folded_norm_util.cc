// SPDX-License-Identifier: Apache-2.0
// The norm that fused products take in.
#include "ops/folded_norm_util.h"

#include <string>

namespace atb {

std::vector<AttrSpec> folded_norm_attrs() {
  return {{"norm", AttrKind::kText, std::string("none"), false, "none, rms or layer: what x goes through first"},
          {"eps", AttrKind::kReal, 0.0, false, "eps of the norm"}};
}

void require_folded_norm(const InferArgs& args, size_t weight) {
  const std::string& norm = args.attrs.text("norm");
  const size_t bias = weight + 1;
  if (norm != "none" && norm != "rms" && norm != "layer") {
    args.fail("norm \"" + norm + "\": use none, rms or layer");
  }
  if (norm == "none" && (args.has(weight) || args.has(bias))) {
    args.fail("norm is none: leave out norm_weight and norm_bias, or say which norm they are of");
  }
  if (norm == "rms" && (!args.has(weight) || args.has(bias))) {
    args.fail("an rms norm has a norm_weight and no norm_bias");
  }
  require_norm_inputs(args, 0, weight, bias);
}

Value* folded_norm(Builder& b, std::span<Value* const> inputs, const Attrs& attrs, size_t weight) {
  const std::string& norm = attrs.text("norm");
  if (norm == "none") return inputs[0];
  const auto at = [&](size_t index) { return index < inputs.size() ? inputs[index] : nullptr; };
  const Attrs eps{{"eps", attrs.real("eps")}};
  if (norm == "rms") return b("rms_norm", {inputs[0], at(weight)}, eps);
  return b("layer_norm", {inputs[0], at(weight), at(weight + 1)}, eps);
}

std::optional<NormOperands> folded_norm_operands(const Node& node, size_t weight) {
  const std::string& norm = node.attrs().text("norm");
  if (norm == "none") return std::nullopt;
  const int index = static_cast<int>(weight);
  return NormOperands{.x = 0, .weight = index, .bias = index + 1, .residual = -1, .layer = norm == "layer"};
}

}  // namespace atb
