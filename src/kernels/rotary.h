// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding of the heads of one token (Su et al. 2021, arXiv:2104.09864).
#pragma once

#include <cstdint>

namespace atb::kernels {

// One token: heads x[h * x_stride ...] of `head_dim` values; cos and sin hold `half` values. The first 2 * half values
// of a head rotate in pairs (a, b) -> (a cos - b sin, b cos + a sin), each product rounded; the rest is copied bit for
// bit. Pairs are (i, i + half), or (2i, 2i + 1) when interleaved. y may be x.
void rotate_heads(const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t heads, int64_t head_dim,
                  int64_t half, const float* cos, const float* sin, bool interleaved);

// Instruction set that it runs on.
const char* rotary_target();

}  // namespace atb::kernels
