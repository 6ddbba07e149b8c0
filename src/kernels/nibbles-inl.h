// SPDX-License-Identifier: Apache-2.0
// Reading 4-bit weights of a panel: 64-byte group j holds terms 4j .. 4j + 3 in its low nibbles, 16 + 4j .. in its
// high. Include inside a per-target translation unit.

// Per-target include guard.
#if defined(ATB_KERNELS_NIBBLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATB_KERNELS_NIBBLES_INL_H_
#undef ATB_KERNELS_NIBBLES_INL_H_
#else
#define ATB_KERNELS_NIBBLES_INL_H_
#endif

#include "kernels/matmul_format-inl.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Terms 4 G .. 4 G + 3 of the block whose nibbles start at p, one in each byte.
template <int G>
HWY_INLINE HWY_ATTR Bytes load_nibbles(const std::byte* p, int v) {
  const hn::Repartition<uint16_t, TileTag> d16;
  const Bytes both = load_group(p, G % 4, v);
  const Bytes low = G < 4 ? both : hn::BitCast(BytesTag(), hn::ShiftRight<4>(hn::BitCast(d16, both)));
  return hn::And(low, hn::Set(BytesTag(), 0x0f));
}

// Term 4 step + I (I < 4), or 16 + 4 step + I - 4, as f32: 0 to 15.
template <int I>
HWY_INLINE HWY_ATTR TileVec nibble_as_f32(const std::byte* p, int step, int v) {
  constexpr int kShift = 8 * (I % 4) + 4 * (I / 4);
  const Sums shifted = hn::ShiftRight<kShift>(hn::BitCast(SumsTag(), load_group(p, step, v)));
#if HWY_TARGET <= HWY_AVX3
  // A permute reads only the low four bits of an index: mask and conversion in one.
  const __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return TileVec{_mm512_permutexvar_ps(shifted.raw, values)};
#else
  return hn::ConvertTo(TileTag(), hn::And(shifted, hn::Set(SumsTag(), 0x0f)));
#endif
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR

#endif  // ATB_KERNELS_NIBBLES_INL_H_
