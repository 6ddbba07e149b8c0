// SPDX-License-Identifier: Apache-2.0
// Element types of values and of plain (unencoded) constants.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace atb {

// kState is the type of linear state values (a KV cache version); it has no elements.
enum class DType : uint8_t { kF32, kF64, kF16, kBF16, kI8, kU8, kI32, kI64, kBool, kState };

size_t dtype_size(DType dtype);                               // bytes of one element; 0 for kState
std::string_view dtype_name(DType dtype);                     // "f32", "bf16", "i32", "bool", "state", ...
std::optional<DType> dtype_from_name(std::string_view name);  // the inverse
bool is_float(DType dtype);

// IEEE binary16 <-> binary32, round to nearest even.
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);

inline float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Round to nearest even; NaN stays NaN (quiet).
inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace atb
