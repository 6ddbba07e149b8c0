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

// A rank-0 constant of `dtype` (a float type, rounded to nearest even; i32, i64, bool; kInternal otherwise).
ConstantRef scalar_constant(DType dtype, double number, std::string name = "scalar");

}  // namespace atb
