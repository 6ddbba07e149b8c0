// SPDX-License-Identifier: Apache-2.0
// RMS and layer normalization of one row of f32. A row's result depends on that row alone: sums run in one fixed order
// that neither the number of rows nor alignment changes.
#pragma once

#include <cstdint>

namespace atb::kernels {

struct NormParameters {
  const float* weight = nullptr;  // n values; null: ones
  const float* bias = nullptr;    // n values; null: zeros
  float eps = 0;
  int64_t n = 0;
  bool layer = false;  // layer norm (mean subtracted), else rms norm
};

// rms: out = x / sqrt(mean(x^2) + eps) * weight; layer: out = (x - mean) / sqrt(variance + eps) * weight + bias.
// out may be x.
void norm_row(const NormParameters& parameters, const float* x, float* out);

// out = a + b over n values; out may be a or b.
void add_rows(const float* a, const float* b, int64_t n, float* out);

// Instruction set that they run on.
const char* norm_target();

}  // namespace atb::kernels
