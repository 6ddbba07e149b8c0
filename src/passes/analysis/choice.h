// SPDX-License-Identifier: Apache-2.0
// Operators on values that are one of two numbers by a condition.
#pragma once

#include <functional>
#include <optional>

#include "passes/analysis/forms.h"

namespace atb {

// f of each number, which a NaN says to give up on.
std::optional<Form> mapped(const Choice& a, const std::function<double(double)>& f);

// f(a, b) on `rank` axes, where that is one of two numbers again: both choose by the same condition or its negation, or
// of the four pairs one differs from the others, or one operand alone decides. So conjunctions, sums of equal fills,
// products of triangles.
std::optional<Form> mapped(const Choice& a, const Choice& b, size_t rank,
                           const std::function<double(double, double)>& f);

// The number as a value of that type holds it; NaN where none does.
double rounded(double number, DType dtype);

}  // namespace atb
