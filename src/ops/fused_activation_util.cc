// SPDX-License-Identifier: Apache-2.0
// Activations as attributes of fused operators name them.
#include "ops/fused_activation_util.h"

#include <array>
#include <string>

namespace atb {
namespace {

struct NamedActivation {
  std::string_view name;
  Activation activation;
  std::string_view op;  // the plain operator
};

constexpr std::array<NamedActivation, 5> kActivations = {{
    {"none", Activation::kNone, ""},
    {"silu", Activation::kSilu, "silu"},
    {"gelu_none", Activation::kGeluErf, "gelu"},
    {"gelu_tanh", Activation::kGeluTanh, "gelu"},
    {"relu", Activation::kRelu, "relu"},
}};

const NamedActivation* find_activation(std::string_view name) {
  for (const NamedActivation& item : kActivations) {
    if (item.name == name) return &item;
  }
  return nullptr;
}

}  // namespace

std::optional<Activation> activation_named(std::string_view name) {
  const NamedActivation* found = find_activation(name);
  return found == nullptr ? std::nullopt : std::optional(found->activation);
}

Value* activated(Builder& b, std::string_view name, Value* x) {
  const NamedActivation& activation = *find_activation(name);
  if (activation.activation == Activation::kNone) return x;
  Attrs options;
  if (activation.op == "gelu") {
    options.set("approximate", std::string(activation.activation == Activation::kGeluTanh ? "tanh" : "none"));
  }
  return b(activation.op, {x}, options);
}

}  // namespace atb
