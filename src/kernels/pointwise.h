// SPDX-License-Identifier: Apache-2.0
// Functions of one f32 operand, element by element, for each instruction set. Every element is computed alike, whatever
// its place and however many there are.
#pragma once

#include <cstdint>

namespace atb::kernels {

enum class Pointwise { kExp, kTanh, kSigmoid, kSilu, kGeluErf, kGeluTanh };

// out[i] = function(x[i * stride]) for i < n; out may be x where stride is 1. Errors: kernels/math-inl.h.
void apply_pointwise(Pointwise function, const float* x, int64_t stride, int64_t n, float* out);

// out = exp(x - max) / sum of that, over n values; zeros where all are -inf. out may be x.
void softmax_row(const float* x, int64_t n, float* out);

// Instruction set that they run on.
const char* pointwise_target();

}  // namespace atb::kernels
