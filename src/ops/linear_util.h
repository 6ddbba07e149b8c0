// SPDX-License-Identifier: Apache-2.0
// What linear, merged_matmul and fused_gate_up share: shape rule of their inputs, reference loops, rows of a weight.
#pragma once

#include <cstdint>
#include <string>

#include "ir/builder.h"
#include "ops/infer_util.h"

namespace atb {

// x[..., K], w[N, K] and an optional bias[N] are floats that agree; returns N.
Dim require_linear_inputs(const InferArgs& args);

// 2 * rows * N * K, for x and w of a node.
Dim linear_flops(const Node& node);

// Rows [first, first + count) of a weight or bias, for decompositions: of a constant, a handle to its rows; of another
// value, gathered.
Value* weight_rows(Builder& b, Value* weight, int64_t first, int64_t count);

// out[i] = x . w row (first + i) + bias[first + i] for i < count; x one row of k terms, bias may be null.
template <class T>
void linear_row(const T* x, const T* w, const T* bias, int64_t k, int64_t first, int64_t count, T* out) {
  for (int64_t n = first; n < first + count; ++n) {
    T sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += x[i] * w[n * k + i];
    out[n - first] = bias == nullptr ? sum : sum + bias[n];
  }
}

}  // namespace atb
