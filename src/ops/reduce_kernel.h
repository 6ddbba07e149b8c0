// SPDX-License-Identifier: Apache-2.0
// Kernels of sum, mean and max.
#pragma once

#include <memory>

#include "ir/kernel.h"

namespace atb {

enum class Reduction { kSum, kMean, kMax };

// What a maximum over nothing is, and starts with.
int64_t lowest_integer(DType dtype);

// For f32, i32, i64 and bool; null for others. The order of additions is fixed by the shape.
std::unique_ptr<Kernel> make_reduce_kernel(const Node& node, Reduction reduction);

}  // namespace atb
