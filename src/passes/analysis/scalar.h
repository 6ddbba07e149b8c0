// SPDX-License-Identifier: Apache-2.0
// One-element constants: reading and making them.
#pragma once

#include <optional>
#include <string>

#include "core/constant.h"
#include "ir/graph.h"

namespace atb {

// The number of a present one-element constant of any shape (f64 where i64 has more digits); nothing for other values.
std::optional<double> scalar_value(const Value* value);

// A rank-0 float constant of `dtype` (f32, f64, f16, bf16; kInternal otherwise), rounded to nearest even.
ConstantRef scalar_constant(DType dtype, double number, std::string name = "scalar");

}  // namespace atb
