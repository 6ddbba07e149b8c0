// SPDX-License-Identifier: Apache-2.0
// Block encodings of constants (GGUF Q8_0, Q4_0, Q4_1, ...): registered descriptors, no central enum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace atb {

// Rows of a constant are cut along the last axis into blocks of `block_elems` values stored in `block_bytes` bytes.
struct Encoding {
  std::string name;     // "q4_1"
  int64_t block_elems;  // 32
  int64_t block_bytes;  // 20
  // Decodes `blocks` consecutive blocks to f32: the definition that every kernel is tested against. `src` may be
  // unaligned.
  void (*decode)(const std::byte* src, int64_t blocks, float* dst);
  // Encodes f32 values, for tests and conversion tools; null where there is none.
  void (*encode)(const float* src, int64_t blocks, std::byte* dst);
};

// All encodings of this build, in a fixed order.
const std::vector<const Encoding*>& encodings();
// Null if there is none of that name.
const Encoding* find_encoding(std::string_view name);

}  // namespace atb
