// SPDX-License-Identifier: Apache-2.0
// Matrix products against Q4_0 weights: blocks of 32 nibbles with an f16 scale, w = scale * (q - 8).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_q4_0.cc"  // NOLINT
#include "hwy/foreach_target.h"                      // IWYU pragma: keep
// After foreach_target.h.
#include "kernels/matmul_formats.h"
#include "kernels/nibbles-inl.h"
#include "kernels/pack_util.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR  // below the least target, see require_cpu_target()

MatmulFormat make_matmul_q4_0(bool) { return {}; }

#else
namespace {

struct Q4_0 {
  static constexpr bool kIsF32 = false;
  static constexpr int kTerms = 32;
  static constexpr int kParts = 2;  // low nibbles, then high ones
  static constexpr int kSteps = 4;
  static constexpr int kStepTerms = 4;
  static constexpr size_t kHeader = 2 * kTileLanes;
  static constexpr size_t kBytes = kHeader + 16 * kTileLanes;

  // Quantized activations.
  static constexpr bool kHasMin = false;
  static constexpr int32_t kZero = 8;
  using Dot = SmallWeightDot;
  static HWY_INLINE HWY_ATTR TileVec scales(const std::byte* p, int v) { return load_f16(p, v); }
  static HWY_INLINE HWY_ATTR TileVec mins(const std::byte*, int) { return hn::Zero(TileTag()); }
  template <int G>
  static HWY_INLINE HWY_ATTR Bytes weight(const std::byte* p, int v) {
    return load_nibbles<G>(p + kHeader, v);
  }

  // Exact: scale * (q - 8) has at most 11 + 4 bits.
  using Scales = TileVec;
  template <int I>
  static HWY_INLINE HWY_ATTR TileVec weight(const std::byte* p, TileVec scale, int step, int v) {
    return hn::Mul(scale, hn::Sub(nibble_as_f32<I>(p + kHeader, step, v), hn::Set(TileTag(), 8.0f)));
  }
};

}  // namespace

MatmulFormat make_matmul_q4_0(bool int8) { return int8 ? int8_format<Q4_0>() : exact_format<Q4_0>(); }

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atb {
HWY_EXPORT(make_matmul_q4_0);

MatmulFormat matmul_q4_0(bool int8) {
  MatmulFormat table = HWY_DYNAMIC_DISPATCH(make_matmul_q4_0)(int8);
  table.name = "q4_0";
  table.pack = [](const std::byte* const* rows, int64_t k, std::byte* panel) { pack_blocks(rows, k, 1, 16, panel); };
  return table;
}
}  // namespace atb
#endif  // HWY_ONCE
