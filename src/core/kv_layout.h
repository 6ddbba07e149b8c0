// SPDX-License-Identifier: Apache-2.0
// Memory layout of paged keys and values, shared by the pool that owns them and the kernels that read them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace atb {

// Positions of one K panel: keys are stored transposed, 16 positions side by side.
constexpr int64_t kKeyPanel = 16;
// Attention sums are partitioned at absolute multiples of this many key positions; merged by a left fold in ascending
// order. Part of the promise of equal bits: never chosen by shape or thread count.
constexpr int64_t kAttentionPartition = 128;

// One cache group: slots (layers) of equal kv_heads, head_dim and dtype. A block holds `block_tokens` positions of all
// slots. Within (block, slot): K [kv_heads][block_tokens / 16][head_dim][16], then V
// [kv_heads][block_tokens][head_dim].
struct KvLayout {
  DType dtype = DType::kF32;  // kF32 or kBF16
  int64_t slots = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t block_tokens = 32;  // multiple of 16 that divides 128

  size_t element() const { return dtype_size(dtype); }
  size_t plane_bytes() const {  // K or V of one slot in one block
    return static_cast<size_t>(kv_heads * block_tokens * head_dim) * element();
  }
  size_t slot_bytes() const { return 2 * plane_bytes(); }
  size_t block_bytes() const { return static_cast<size_t>(slots) * slot_bytes(); }
  size_t token_bytes() const { return block_bytes() / static_cast<size_t>(block_tokens); }

  // Byte offset in a (block, slot) of head h's 16-position K panel p: [head_dim][16] elements.
  size_t k_panel(int64_t h, int64_t p) const {
    return static_cast<size_t>((h * (block_tokens / kKeyPanel) + p) * head_dim * kKeyPanel) * element();
  }
  // Byte offset in a (block, slot) of head h's V row of position t in the block: [head_dim] elements.
  size_t v_row(int64_t h, int64_t t) const {
    return plane_bytes() + static_cast<size_t>((h * block_tokens + t) * head_dim) * element();
  }
};

// One sequence's part of a ragged step: rows [row_begin, row_begin + rows) of the step are its positions past,
// past + 1, .... `blocks[i]` is the memory of its positions [i * block_tokens, ...); all needed ones are present.
struct SequenceStep {
  int64_t row_begin = 0;
  int64_t rows = 0;
  int64_t past = 0;
  std::byte* const* blocks = nullptr;

  std::byte* slot(const KvLayout& layout, int64_t block, int64_t slot_index) const {
    return blocks[block] + static_cast<size_t>(slot_index) * layout.slot_bytes();
  }
};

}  // namespace atb
