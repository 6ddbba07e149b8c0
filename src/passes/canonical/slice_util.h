// SPDX-License-Identifier: Apache-2.0
// Slices as normal forms see them: axes counted from the front, bounds as dims.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/graph.h"
#include "passes/engine/rewriter.h"

namespace atb {

struct Slice {
  size_t axis = 0;
  Dim begin, end;
  int64_t step = 1;
};

Slice slice_of(const Node& slice);
// x[slice]; x itself where that is all of it.
Value* rebuilt(Rewriter& rewriter, Value* x, const Slice& slice);

// The attribute "axis", counted from the front.
size_t axis_of(const Node& node);

// What the shapes of elementwise operands broadcast to; empty where it cannot be told.
Shape broadcast_shape_of(const std::vector<Value*>& operands);

}  // namespace atb
