// SPDX-License-Identifier: Apache-2.0
// Rotary tables, whatever their spelling: a value that is cos or sin of position times frequency, or rows of a
// constant.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "passes/analysis/block.h"

namespace atb {

// One stage of such a value. Its leading axes follow axes of `positions` (or are units), its trailing axes hold
// frequencies: value[.., f] = scale * function(positions[..] * frequencies[f]); of a lookup, the frequencies are the
// numbers of its columns: value[.., f] = scale * lookup[positions[..], frequencies[f]].
struct RotaryTableForm {
  enum class Function { kPosition, kFrequency, kAngle, kCos, kSin, kLookup };
  Function function = Function::kFrequency;
  Value* positions = nullptr;      // integer; null for a frequency
  std::vector<int> position_axes;  // of each leading axis of the value, the axis of positions, or -1
  Block<float> frequencies;        // empty dims for a position
  Value* inv_freq = nullptr;       // the constant that they were read from
  Value* lookup = nullptr;         // a constant [positions, columns]
  double scale = 1;

  bool is_table() const {
    return function == Function::kCos || function == Function::kSin || function == Function::kLookup;
  }
};

// Follows cast, views, concat and slice of frequencies, mul and an outer product by matmul, cos, sin, a constant
// factor. Angles must be products in f32, as those of rotary_table are.
std::optional<RotaryTableForm> rotary_table_form(Value* value);

// An integer value without the units, copies and casts around it, and where its axes are in `value` (-1: none).
struct IntegerSource {
  Value* source = nullptr;
  std::vector<int> axes;  // of each axis of the value, the axis of the source, or -1
};
IntegerSource integer_source(Value* value);

}  // namespace atb
