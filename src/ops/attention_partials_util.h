// SPDX-License-Identifier: Apache-2.0
// Partial results of attention stacked on axis 0: output [P, ..., D], max and sum [P, ...]. What online_softmax and
// output_merge share.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/tensor.h"
#include "ir/op.h"
#include "kernels/attention.h"

namespace atb {

// Fails unless inputs `max` and `sum` are float tensors [P, ...] of one shape.
void require_statistics(const InferArgs& args, size_t max, size_t sum);

// Rows that a unit of work folds.
constexpr int64_t kFoldRows = kernels::kAttentionRows;

// Floats of scratch for fold_partials of outputs with `head_dim` columns (0: none).
int64_t fold_scratch(int64_t head_dim);

// Folds the partials of rows [first, first + tile.rows), counted row-major over [...], in ascending order into `tile`,
// whose head_dim and rows are set and whose results this places in `scratch` (64-byte aligned). `output` may be null:
// then only maxima and sums are folded, and head_dim is 0.
void fold_partials(const TensorView* output, const TensorView& max, const TensorView& sum, int64_t first,
                   kernels::AttentionTile& tile, float* scratch);

// The reference: one row of P partials `step` rows apart, merged at once. Gives max and sum, and the factor that each
// partial's output takes.
template <class T>
void merge_statistics(const T* max, const T* sum, int64_t partials, int64_t step, T* merged_max, T* merged_sum,
                      std::vector<T>& factors) {
  T largest = -std::numeric_limits<T>::infinity();
  for (int64_t p = 0; p < partials; ++p) {
    if (sum[p * step] != 0) largest = std::max(largest, max[p * step]);
  }
  T total = 0;
  factors.assign(static_cast<size_t>(partials), T(0));
  for (int64_t p = 0; p < partials; ++p) {
    if (sum[p * step] == 0) continue;
    const T factor = std::exp(max[p * step] - largest);
    factors[static_cast<size_t>(p)] = factor;
    total += sum[p * step] * factor;
  }
  *merged_max = largest;
  *merged_sum = total;
}

}  // namespace atb
