// SPDX-License-Identifier: Apache-2.0
// Dot products of bytes, which Highway 1.0.3 lacks: VPDPBUSD on AVX3_DL, VPMADDUBSW on AVX2 and AVX3, a portable form
// elsewhere. All are exact. Include inside a per-target translation unit.

// Per-target include guard.
#if defined(ATB_KERNELS_INT8_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATB_KERNELS_INT8_DOT_INL_H_
#undef ATB_KERNELS_INT8_DOT_INL_H_
#else
#define ATB_KERNELS_INT8_DOT_INL_H_
#endif

#include <stdint.h>
#include <string.h>

#include "hwy/highway.h"
#include "kernels/gemm_tile-inl.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A vector of bytes holds 4 consecutive k of each of its lanes (outputs); lanes are those of TileTag.
using BytesTag = hn::Repartition<uint8_t, TileTag>;
using Bytes = hn::Vec<BytesTag>;
using SumsTag = hn::RebindToSigned<TileTag>;
using Sums = hn::Vec<SumsTag>;

// Four activations, in every lane.
HWY_INLINE HWY_ATTR Bytes broadcast4(const int8_t* x) {
  int32_t four;
  memcpy(&four, x, sizeof(four));
  return hn::BitCast(BytesTag(), hn::Set(SumsTag(), four));
}

// Two traits of one shape, used over one block of 32 k:
//   Acc acc = start(init); acc = step(acc, prepare(weights), activations) 8 times; Sums dot = finish(acc, init);
// gives init + sum of w * x. Weights of SmallWeightDot are unsigned and below 16; those of ByteDot are any signed byte.
// ByteDot adds kOffset * sum(x) too much: the caller's init takes it back. Activations are in [-127, 127].

#if HWY_TARGET == HWY_AVX3_DL

// Written as assembly because Highway's AVX3_DL asks for a CPU with VNNI but does not let the compiler use it.
HWY_INLINE HWY_ATTR Sums dot4(Sums acc, Bytes w, Bytes x) {
  __m512i sum = acc.raw;
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w.raw), "v"(x.raw));
  return Sums{sum};
}

struct SmallWeightDot {
  static constexpr int32_t kOffset = 0;
  using Acc = Sums;
  using Weight = Bytes;
  static HWY_INLINE HWY_ATTR Weight prepare(Bytes w) { return w; }
  static HWY_INLINE HWY_ATTR Acc start(int32_t init) { return hn::Set(SumsTag(), init); }
  static HWY_INLINE HWY_ATTR Acc step(Acc acc, Weight w, Bytes x) { return dot4(acc, w, x); }
  static HWY_INLINE HWY_ATTR Sums finish(Acc acc, int32_t /*init*/) { return acc; }
};

struct ByteDot : SmallWeightDot {
  static constexpr int32_t kOffset = 128;
  static HWY_INLINE HWY_ATTR Weight prepare(Bytes w) { return hn::Xor(w, hn::Set(BytesTag(), 0x80)); }
};

#elif HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2

#if HWY_TARGET == HWY_AVX3
// w unsigned, x signed: w[2i] x[2i] + w[2i+1] x[2i+1] in 16 bits, saturating.
HWY_INLINE HWY_ATTR auto multiply_pairs(Bytes w, Bytes x) {
  return hn::Vec<hn::Repartition<int16_t, TileTag>>{_mm512_maddubs_epi16(w.raw, x.raw)};
}
// Sums of neighbouring 16-bit lanes in 32 bits.
template <class V16>
HWY_INLINE HWY_ATTR Sums add_pairs(V16 v) {
  return Sums{_mm512_madd_epi16(v.raw, _mm512_set1_epi16(1))};
}
// x with the sign of w; -128 never occurs in x.
HWY_INLINE HWY_ATTR Bytes apply_sign(Bytes x, Bytes w) {
  return Bytes{_mm512_mask_sub_epi8(x.raw, _mm512_movepi8_mask(w.raw), _mm512_setzero_si512(), x.raw)};
}
#else
HWY_INLINE HWY_ATTR auto multiply_pairs(Bytes w, Bytes x) {
  return hn::Vec<hn::Repartition<int16_t, TileTag>>{_mm256_maddubs_epi16(w.raw, x.raw)};
}
template <class V16>
HWY_INLINE HWY_ATTR Sums add_pairs(V16 v) {
  return Sums{_mm256_madd_epi16(v.raw, _mm256_set1_epi16(1))};
}
HWY_INLINE HWY_ATTR Bytes apply_sign(Bytes x, Bytes w) { return Bytes{_mm256_sign_epi8(x.raw, w.raw)}; }
#endif

// The compiler may not reorder a chain of sums: it would multiply all pairs first and run out of registers.
template <class V>
HWY_INLINE HWY_ATTR V pinned(V v) {
  asm("" : "+v"(v.raw));
  return v;
}

// Eight pair sums of at most 2 * 15 * 127 = 3810 stay below 2^15 (30,480), so a block needs one widening.
struct SmallWeightDot {
  static constexpr int32_t kOffset = 0;
  using Acc = hn::Vec<hn::Repartition<int16_t, TileTag>>;
  using Weight = Bytes;
  static HWY_INLINE HWY_ATTR Weight prepare(Bytes w) { return w; }
  static HWY_INLINE HWY_ATTR Acc start(int32_t /*init*/) { return hn::Zero(hn::Repartition<int16_t, TileTag>()); }
  static HWY_INLINE HWY_ATTR Acc step(Acc acc, Weight w, Bytes x) { return pinned(hn::Add(acc, multiply_pairs(w, x))); }
  static HWY_INLINE HWY_ATTR Sums finish(Acc acc, int32_t init) {
    return hn::Add(add_pairs(acc), hn::Set(SumsTag(), init));
  }
};

// |w| * (x with the sign of w): 2 * 128 * 127 = 32,512 does not saturate (the other way round, -128 would).
struct ByteDot {
  static constexpr int32_t kOffset = 0;
  using Acc = Sums;
  struct Weight {
    Bytes magnitude, value;
  };
  static HWY_INLINE HWY_ATTR Weight prepare(Bytes w) {
    const hn::RebindToSigned<BytesTag> d8;
    return {hn::BitCast(BytesTag(), hn::Abs(hn::BitCast(d8, w))), w};  // |-128| = 128 as an unsigned byte
  }
  static HWY_INLINE HWY_ATTR Acc start(int32_t init) { return hn::Set(SumsTag(), init); }
  static HWY_INLINE HWY_ATTR Acc step(Acc acc, Weight w, Bytes x) {
    return pinned(hn::Add(acc, add_pairs(multiply_pairs(w.magnitude, apply_sign(x, w.value)))));
  }
  static HWY_INLINE HWY_ATTR Sums finish(Acc acc, int32_t /*init*/) { return acc; }
};

#else  // portable: each of the four bytes of a lane in turn

template <int kByte>
HWY_INLINE HWY_ATTR Sums signed_byte(Bytes v) {
  return hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * kByte>(hn::BitCast(SumsTag(), v)));
}

struct ByteDot {
  static constexpr int32_t kOffset = 0;
  using Acc = Sums;
  using Weight = Bytes;
  static HWY_INLINE HWY_ATTR Weight prepare(Bytes w) { return w; }
  static HWY_INLINE HWY_ATTR Acc start(int32_t init) { return hn::Set(SumsTag(), init); }
  static HWY_INLINE HWY_ATTR Acc step(Acc acc, Weight w, Bytes x) {
    acc = hn::Add(acc, hn::Mul(signed_byte<0>(w), signed_byte<0>(x)));
    acc = hn::Add(acc, hn::Mul(signed_byte<1>(w), signed_byte<1>(x)));
    acc = hn::Add(acc, hn::Mul(signed_byte<2>(w), signed_byte<2>(x)));
    return hn::Add(acc, hn::Mul(signed_byte<3>(w), signed_byte<3>(x)));
  }
  static HWY_INLINE HWY_ATTR Sums finish(Acc acc, int32_t /*init*/) { return acc; }
};

using SmallWeightDot = ByteDot;

#endif

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR

#endif  // ATB_KERNELS_INT8_DOT_INL_H_
