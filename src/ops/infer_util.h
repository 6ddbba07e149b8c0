// SPDX-License-Identifier: Apache-2.0
// Helpers of shape rules: checks with messages, and broadcasting.
#pragma once

#include <vector>

#include "ir/op.h"

namespace atb {

// Result of numpy broadcasting: shapes are aligned at the last axis; extents must be proven equal or one of them be 1.
Shape broadcast_shape(const InferArgs& args, const Shape& a, const Shape& b);

void require_rank(const InferArgs& args, size_t input, int rank);
void require_min_rank(const InferArgs& args, size_t input, int rank);
void require_float(const InferArgs& args, size_t input);
void require_integer(const InferArgs& args, size_t input);  // i32 or i64
// Fails unless the extents are proven equal; `what` says which they are: "K of x and w".
void require_equal(const InferArgs& args, const Dim& a, const Dim& b, const char* what);
// Input `input` is a vector [extent].
void require_vector(const InferArgs& args, size_t input, const Dim& extent, const char* what);

void require_no_state(const InferArgs& args);  // all inputs are tensors
void require_bool(const InferArgs& args, size_t input);
// Both are floats, or both integers or bools.
void require_same_kind(const InferArgs& args, size_t a, size_t b);
// `axis`, which may count from the end, as an index into `rank` axes of input 0.
size_t require_axis(const InferArgs& args, int64_t axis, int rank);

// `axis` as an index, and attribute "axis" of a node, whose input 0 has been checked to have it.
inline size_t axis_index(int64_t axis, size_t rank) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}
inline size_t axis_of(const Node& node) {
  return axis_index(node.attrs().integer("axis"), node.input(0)->shape().size());
}

// dtype of the first float input; where none is float, the widest of the integers (bool, i8, i32, i64).
DType result_dtype(const InferArgs& args);

// Shape of all axes but the last `count`.
Shape leading(const Shape& shape, size_t count = 1);

}  // namespace atb
