// SPDX-License-Identifier: Apache-2.0
#include "ops/attention_partials_util.h"

#include <algorithm>

#include "ops/infer_util.h"

namespace atb {

void require_statistics(const InferArgs& args, size_t max, size_t sum) {
  require_float(args, max);
  require_float(args, sum);
  require_min_rank(args, max, 1);
  require_rank(args, sum, args.inputs[max]->rank());
  for (size_t i = 0; i < args.type(max).shape.size(); ++i) {
    require_equal(args, args.type(max).shape[i], args.type(sum).shape[i], "extents of max and sum");
  }
}

// Running results, then those of one partial: outputs, maxima, sums.
int64_t fold_scratch(int64_t head_dim) { return 2 * kFoldRows * (kernels::padded_head_dim(head_dim) + 2); }

void fold_partials(const TensorView* output, const TensorView& max, const TensorView& sum, int64_t first,
                   kernels::AttentionTile& tile, float* scratch) {
  const int64_t columns = kernels::padded_head_dim(tile.head_dim);
  tile.acc = scratch;
  tile.max = tile.acc + kFoldRows * columns;
  tile.sum = tile.max + kFoldRows;
  float* acc = tile.sum + kFoldRows;
  float* maxima = acc + kFoldRows * columns;
  float* sums = maxima + kFoldRows;
  const int64_t rows = max.size() / std::max<int64_t>(max.dim(0), 1);
  kernels::attention_start(tile);
  for (int64_t p = 0; p < max.dim(0); ++p) {
    for (int64_t i = 0; i < tile.rows; ++i) {
      const int64_t row = p * rows + first + i;
      maxima[i] = max.as<const float>()[leading_offset(max, max.rank, row)];
      sums[i] = sum.as<const float>()[leading_offset(sum, sum.rank, row)];
      if (output == nullptr) continue;
      const float* from = output->as<const float>() + leading_offset(*output, output->rank - 1, row);
      std::copy_n(from, tile.head_dim, acc + i * columns);
      std::fill(acc + i * columns + tile.head_dim, acc + (i + 1) * columns, 0.0f);
    }
    kernels::attention_fold(tile, maxima, sums, acc);
  }
}

}  // namespace atb
