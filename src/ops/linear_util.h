// SPDX-License-Identifier: Apache-2.0
// What the products with a weight share: shape rules, reference loops, rows of a weight.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// One output of so many features for each entry of the attribute "splits", whose sum is N.
std::vector<Type> infer_split_linears(const InferArgs& args);
// A linear for each split; bias may be null. The weight itself where there is one split.
std::vector<Value*> split_linears(Builder& b, Value* x, Value* weight, Value* bias, const std::vector<int64_t>& splits);

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
