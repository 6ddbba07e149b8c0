// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding, whatever its spelling: a value whose last axis is pairwise rotated by tables.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "passes/analysis/rotary_table_form.h"

namespace atb {

// Columns of a constant table, one a pair of features.
struct RotaryColumns {
  Value* table = nullptr;
  std::vector<int64_t> columns;
};

// The value is features [first, first + size) of the last axis of `x` of which the leading 2 * frequencies are rotated
// in pairs: (i, i + R/2), or (2i, 2i + 1) when interleaved; the others are those of x.
struct RotaryForm {
  Value* x = nullptr;
  int64_t first = 0;
  int64_t size = 0;
  std::vector<float> frequencies;  // R/2; empty for tables that are rows of constants
  RotaryColumns cos, sin;          // of those
  bool interleaved = false;
  RotaryTableForm table;             // positions, inv_freq, scale; its function and frequencies mean nothing here
  std::vector<int> position_depths;  // of each axis of the positions, its distance from the last axis of x
};

// Follows sums, differences, products with tables, neg, concat, slice and regrouping of the last axis down to one x
// and checks that together they are a rotation. Nothing if they are not.
std::optional<RotaryForm> rotary_form(Value* value);

}  // namespace atb
