// SPDX-License-Identifier: Apache-2.0
// Activations as attributes of fused operators name them: none, silu, gelu_none, gelu_tanh, relu.
#pragma once

#include <optional>
#include <string_view>

#include "ir/builder.h"
#include "kernels/store_panel.h"

namespace atb {

// What a kernel calls it; nothing for another name.
std::optional<Activation> activation_named(std::string_view name);

// The plain operator on x; x itself for none.
Value* activated(Builder& b, std::string_view name, Value* x);

}  // namespace atb
