// SPDX-License-Identifier: Apache-2.0
// The GGUF block encodings Q8_0, Q4_0 and Q4_1 (layouts and formulas as documented by the format; decoding is the
// definition: f32, one rounding a step; encoding serves tests and conversion tools), and f32 values stored as halves.
#include "core/encoding.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/dtype.h"

namespace atb {
namespace {

constexpr int64_t kBlock = 32;  // values of a block, in all three
constexpr int64_t kHalf = kBlock / 2;
constexpr int64_t kScaleBytes = 2;  // one binary16
constexpr float kMaxF16 = 65504.0f;

float load_f16(const std::byte* src) {
  uint16_t bits;
  std::memcpy(&bits, src, sizeof bits);
  return f16_to_f32(bits);
}

// Saturates: a block of huge values decodes to finite ones.
void store_f16(float value, std::byte* dst) {
  const uint16_t bits = f32_to_f16(std::clamp(value, -kMaxF16, kMaxF16));
  std::memcpy(dst, &bits, sizeof bits);
}

// A block of zeros (or of values whose reciprocal overflows) has no reciprocal scale: it encodes to zeros.
float reciprocal(float scale) {
  const float inverse = 1.0f / scale;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

// Truncates to an integer in [low, high]; NaN gives low.
int truncate(float value, int low, int high) {
  if (!(value > static_cast<float>(low))) return low;
  if (value >= static_cast<float>(high)) return high;
  return static_cast<int>(value);
}

// Value i is the low half of byte i for i < 16, else the high half of byte i - 16.
int nibble(const std::byte* quants, int64_t i) {
  const int byte = std::to_integer<int>(quants[i % kHalf]);
  return i < kHalf ? byte & 15 : byte >> 4;
}

void store_nibbles(const int* values, std::byte* dst) {
  for (int64_t i = 0; i < kHalf; ++i) dst[i] = static_cast<std::byte>(values[i] | (values[i + kHalf] << 4));
}

// --- Q8_0: f16 d, then 32 int8 q. x = q * d.
constexpr int64_t kQ80Bytes = kScaleBytes + kBlock;

void decode_q8_0(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += kQ80Bytes, dst += kBlock) {
    const float d = load_f16(src);
    for (int64_t i = 0; i < kBlock; ++i) {
      dst[i] = static_cast<float>(static_cast<int8_t>(src[kScaleBytes + i])) * d;
    }
  }
}

void encode_q8_0(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += kBlock, dst += kQ80Bytes) {
    float largest = 0.0f;
    for (int64_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::fabs(src[i]));
    const float d = largest / 127.0f;
    const float inverse = reciprocal(d);
    store_f16(d, dst);
    for (int64_t i = 0; i < kBlock; ++i) {
      dst[kScaleBytes + i] = static_cast<std::byte>(truncate(std::round(src[i] * inverse), -127, 127));
    }
  }
}

// --- Q4_0: f16 d, then 16 bytes of nibbles. x = d * (q - 8).
constexpr int64_t kQ40Bytes = kScaleBytes + kHalf;

void decode_q4_0(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += kQ40Bytes, dst += kBlock) {
    const float d = load_f16(src);
    for (int64_t i = 0; i < kBlock; ++i) dst[i] = d * static_cast<float>(nibble(src + kScaleBytes, i) - 8);
  }
}

void encode_q4_0(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += kBlock, dst += kQ40Bytes) {
    // The value of largest magnitude, with its sign, becomes q = 0.
    float extreme = src[0];
    for (int64_t i = 1; i < kBlock; ++i) {
      if (std::fabs(src[i]) > std::fabs(extreme)) extreme = src[i];
    }
    const float d = extreme / -8.0f;
    const float inverse = reciprocal(d);
    store_f16(d, dst);
    int quants[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) quants[i] = truncate(src[i] * inverse + 8.5f, 0, 15);
    store_nibbles(quants, dst + kScaleBytes);
  }
}

// --- Q4_1: f16 d, f16 m, then 16 bytes of nibbles. x = d * q + m, the product rounded before the sum.
constexpr int64_t kQ41Bytes = 2 * kScaleBytes + kHalf;

void decode_q4_1(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += kQ41Bytes, dst += kBlock) {
    const float d = load_f16(src);
    const float m = load_f16(src + kScaleBytes);
    for (int64_t i = 0; i < kBlock; ++i) {
      const float product = d * static_cast<float>(nibble(src + 2 * kScaleBytes, i));
      dst[i] = product + m;
    }
  }
}

void encode_q4_1(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += kBlock, dst += kQ41Bytes) {
    const auto [low, high] = std::minmax_element(src, src + kBlock);
    const float d = (*high - *low) / 15.0f;
    const float inverse = reciprocal(d);
    store_f16(d, dst);
    store_f16(*low, dst + kScaleBytes);
    int quants[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) quants[i] = truncate((src[i] - *low) * inverse + 0.5f, 0, 15);
    store_nibbles(quants, dst + 2 * kScaleBytes);
  }
}

// --- f16, bf16: f32 values stored as halves, blocks of one. For tables that seed f32 activations (embeddings);
// matrices in halves are plain constants of dtype f16 or bf16.
template <float (*ToF32)(uint16_t)>
void decode_half(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t i = 0; i < blocks; ++i) {
    uint16_t bits;
    std::memcpy(&bits, src + 2 * i, sizeof bits);
    dst[i] = ToF32(bits);
  }
}

template <uint16_t (*FromF32)(float)>
void encode_half(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t i = 0; i < blocks; ++i) {
    const uint16_t bits = FromF32(src[i]);
    std::memcpy(dst + 2 * i, &bits, sizeof bits);
  }
}

}  // namespace

const std::vector<const Encoding*>& encodings() {
  static const Encoding q8_0{"q8_0", kBlock, kQ80Bytes, decode_q8_0, encode_q8_0};
  static const Encoding q4_0{"q4_0", kBlock, kQ40Bytes, decode_q4_0, encode_q4_0};
  static const Encoding q4_1{"q4_1", kBlock, kQ41Bytes, decode_q4_1, encode_q4_1};
  static const Encoding f16{"f16", 1, 2, decode_half<f16_to_f32>, encode_half<f32_to_f16>};
  static const Encoding bf16{"bf16", 1, 2, decode_half<bf16_to_f32>, encode_half<f32_to_bf16>};
  static const std::vector<const Encoding*> all{&q8_0, &q4_0, &q4_1, &f16, &bf16};
  return all;
}

const Encoding* find_encoding(std::string_view name) {
  for (const Encoding* encoding : encodings()) {
    if (encoding->name == name) return encoding;
  }
  return nullptr;
}

}  // namespace atb
