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

// dtype of the first float input; of the first input where none is float.
DType result_dtype(const InferArgs& args);

// Shape of all axes but the last `count`.
Shape leading(const Shape& shape, size_t count = 1);

}  // namespace atb
