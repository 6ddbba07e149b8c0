// SPDX-License-Identifier: Apache-2.0
// Attention over partitions of 128 keys: one arithmetic for decode (one partition at a time, partials merged later) and
// prefill (a tile of query rows walks the partitions).
//
// For a query row q, and the visible keys j of one partition in ascending order:
//   s_j = (chain of fused multiply-adds over d of q_d k_jd) * scale [-> softcap * tanh(s_j / softcap)] [+ mask_j],
//   m = max s_j,   p_j = e^(s_j - m),
//   l = sum p_j (lane by absolute position, lanes added in one fixed order),      a_d = chain over j of p_j v_jd.
// Partials (m, l, a) of a row are folded from the left in ascending order of partitions; partitions without a visible
// key are skipped; the result is a_d / l, or 0 if no key was visible. Each of these steps looks at one row alone, so a
// row has the same bits whatever other rows, chunks or threads there are.
// Online softmax: Milakov and Gimelshein 2018, arXiv:1805.02867; tiles: Dao et al. 2022, arXiv:2205.14135.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/kv_layout.h"

namespace atb::kernels {

constexpr int64_t kPartitionPanels = kAttentionPartition / kKeyPanel;
// Query rows of a tile: enough to reuse each key and value read from the second-level cache, few enough to stay there.
constexpr int kAttentionRows = 48;
// Rows that share each load of keys and values: the most whose accumulators fit in registers.
constexpr int kMaxRowBlock = 6;

// Row stride of accumulators: head_dim padded to whole vectors of every instruction set.
constexpr int64_t padded_head_dim(int64_t head_dim) { return (head_dim + kKeyPanel - 1) / kKeyPanel * kKeyPanel; }

// Keys and values of one kv head in one partition, as they lie in cache blocks.
struct KeyPartition {
  int64_t begin = 0;          // absolute position of its first key, a multiple of kAttentionPartition
  DType dtype = DType::kF32;  // kF32 or kBF16
  int64_t v_stride = 0;       // elements from one value row to the next
  std::array<const std::byte*, kPartitionPanels> k{};  // panels [head_dim][16]; unused beyond the last visible key
  std::array<const std::byte*, kPartitionPanels> v{};  // the first of the 16 value rows [head_dim] of each panel
  // Key panels that will be read next, fetched ahead while few rows stream through this partition; null: unknown.
  std::array<const std::byte*, kPartitionPanels> next_k{};
};

// Query rows (token, head) of one kv head, and their running results.
struct AttentionTile {
  int rows = 0;  // at most kAttentionRows
  int64_t head_dim = 0;
  float scale = 1.0f;
  float softcap = 0.0f;                             // bound of the scaled scores; 0: none
  std::array<const float*, kAttentionRows> q{};     // [head_dim]
  std::array<const float*, kAttentionRows> mask{};  // added to the scores, indexed by absolute key; null: none
  std::array<int64_t, kAttentionRows> begin{};      // visible keys are [begin, end), absolute
  std::array<int64_t, kAttentionRows> end{};
  float* max = nullptr;  // [rows]
  float* sum = nullptr;  // [rows]; 0: nothing folded yet
  float* acc = nullptr;  // [rows][padded_head_dim]
};

// Floats of scratch for attend().
size_t attention_scratch(int64_t head_dim);

// Makes the running results empty.
void attention_start(const AttentionTile& tile);
// Folds one partition into the running results. `scratch`: attention_scratch floats, 64-byte aligned.
void attend(const AttentionTile& tile, const KeyPartition& keys, float* scratch);
// Folds the partial results of other tiles' rows, [rows] each, into those of `tile`, row by row.
void attention_fold(const AttentionTile& tile, const float* max, const float* sum, const float* acc);
// out[row] = acc / sum, zeros for rows without a visible key.
void attention_finish(const AttentionTile& tile, float* const* out);

// Instruction set that the calls above run on: "AVX3_DL".
const char* attention_target();

}  // namespace atb::kernels
