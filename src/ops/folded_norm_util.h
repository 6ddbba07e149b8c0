// SPDX-License-Identifier: Apache-2.0
// The norm that fused products take in: attributes norm (none, rms, layer) and eps, inputs norm_weight and norm_bias.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ir/builder.h"
#include "ops/norm_util.h"

namespace atb {

// norm and eps, for OpDef::attrs.
std::vector<AttrSpec> folded_norm_attrs();

// The norm of input 0 is one that there is, with the vectors that it has; `weight` is norm_weight, the input behind it
// norm_bias.
void require_folded_norm(const InferArgs& args, size_t weight);

// Input 0, through a plain norm where there is one.
Value* folded_norm(Builder& b, std::span<Value* const> inputs, const Attrs& attrs, size_t weight);

// For the kernel; nothing where there is none.
std::optional<NormOperands> folded_norm_operands(const Node& node, size_t weight);

}  // namespace atb
