// SPDX-License-Identifier: Apache-2.0
// Writes keys and values into cache blocks: keys transposed into panels of 16 positions, values as rows.
#pragma once

#include <cstdint>

#include "core/kv_layout.h"

namespace atb::kernels {

// Consecutive positions of all kv heads, at most to the end of their key panel.
struct KvRows {
  const float* data = nullptr;  // [rows][kv_heads][head_dim] with these strides, in elements
  int64_t row_stride = 0;
  int64_t head_stride = 0;
};

// Stores `rows` positions from `position` on (counted from the block's first) into one slot of a block, rounded to the
// cache's dtype (nearest even). position % 16 + rows <= 16.
void store_keys(const KvLayout& layout, std::byte* slot, int64_t position, int64_t rows, const KvRows& keys);
void store_values(const KvLayout& layout, std::byte* slot, int64_t position, int64_t rows, const KvRows& values);

}  // namespace atb::kernels
