// SPDX-License-Identifier: Apache-2.0
// What the elements of a constant are as a function of their indices.
#pragma once

#include <optional>

#include "core/constant.h"
#include "passes/analysis/forms.h"

namespace atb {

// One number; integers that go up in equal steps along one axis (the other extents are 1); or two numbers by q - k of a
// square matrix [..., q, k] (the extents before are 1): one in a band, the other outside. Triangles and masks held as
// constants are such bands. A band that reaches a corner counts as open there, so it holds for parts [:T, :T] alone.
// Nothing for encoded and absent constants, and for matrices of more than 4096 rows.
std::optional<Form> form_of(const Constant& constant);

}  // namespace atb
