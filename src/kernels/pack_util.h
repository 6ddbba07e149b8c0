// SPDX-License-Identifier: Apache-2.0
// Packing of rows as stored into panels (see matmul.h for the layouts). Runs once, at load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/matmul.h"

namespace atb {

// Plain elements: out[term * 16 + lane]. Missing rows (null) leave what is there.
template <class T>
void pack_elements(const std::byte* const* rows, int64_t k, std::byte* panel) {
  for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
    if (rows[lane] == nullptr) continue;
    for (int64_t i = 0; i < k; ++i) {
      std::memcpy(panel + static_cast<size_t>(i * kPanelLanes + lane) * sizeof(T),
                  rows[lane] + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    }
  }
}

// Blocks of a file: `headers` f16 values (scale, minimum), then `data` bytes, which go out in groups of 4 a lane.
inline void pack_blocks(const std::byte* const* rows, int64_t k, size_t headers, size_t data, std::byte* panel) {
  constexpr size_t kF16 = 2;
  constexpr size_t kGroup = 4;
  const size_t lanes = static_cast<size_t>(kPanelLanes);
  const size_t stored = headers * kF16 + data;
  for (size_t block = 0; block < static_cast<size_t>(k / kBlockTerms); ++block) {
    std::byte* out = panel + block * stored * lanes;
    for (size_t lane = 0; lane < lanes; ++lane) {
      if (rows[lane] == nullptr) continue;
      const std::byte* in = rows[lane] + block * stored;
      for (size_t h = 0; h < headers; ++h) std::memcpy(out + (h * lanes + lane) * kF16, in + h * kF16, kF16);
      std::byte* groups = out + headers * kF16 * lanes;
      for (size_t g = 0; g < data / kGroup; ++g) {
        std::memcpy(groups + (g * lanes + lane) * kGroup, in + headers * kF16 + g * kGroup, kGroup);
      }
    }
  }
}

}  // namespace atb
