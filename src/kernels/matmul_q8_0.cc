// SPDX-License-Identifier: Apache-2.0
// Matrix products against Q8_0 weights: blocks of 32 signed bytes with an f16 scale, w = scale * q.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_q8_0.cc"  // NOLINT
#include "hwy/foreach_target.h"                      // IWYU pragma: keep
// After foreach_target.h.
#include "kernels/matmul_format-inl.h"
#include "kernels/matmul_formats.h"
#include "kernels/pack_util.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR  // below the least target, see require_cpu_target()

MatmulFormat make_matmul_q8_0(bool) { return {}; }

#else
namespace {

struct Q8_0 {
  static constexpr bool kIsF32 = false;
  static constexpr int kTerms = 32;
  static constexpr int kParts = 1;
  static constexpr int kSteps = 8;
  static constexpr int kStepTerms = 4;
  static constexpr size_t kHeader = 2 * kTileLanes;
  static constexpr size_t kBytes = kHeader + 32 * kTileLanes;

  // Quantized activations.
  static constexpr bool kHasMin = false;
  static constexpr int32_t kZero = 0;
  using Dot = ByteDot;
  static HWY_INLINE HWY_ATTR TileVec scales(const std::byte* p, int v) { return load_f16(p, v); }
  static HWY_INLINE HWY_ATTR TileVec mins(const std::byte*, int) { return hn::Zero(TileTag()); }
  template <int G>
  static HWY_INLINE HWY_ATTR Bytes weight(const std::byte* p, int v) {
    return load_group(p + kHeader, G, v);
  }

  // Exact: scale * q has at most 11 + 8 bits.
  using Scales = TileVec;
  template <int I>
  static HWY_INLINE HWY_ATTR TileVec weight(const std::byte* p, TileVec scale, int step, int v) {
    const Sums group = hn::BitCast(SumsTag(), load_group(p + kHeader, step, v));
    return hn::Mul(scale, hn::ConvertTo(TileTag(), hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * I>(group))));
  }
};

}  // namespace

MatmulFormat make_matmul_q8_0(bool int8) { return int8 ? int8_format<Q8_0>() : exact_format<Q8_0>(); }

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atb {
HWY_EXPORT(make_matmul_q8_0);

MatmulFormat matmul_q8_0(bool int8) {
  MatmulFormat table = HWY_DYNAMIC_DISPATCH(make_matmul_q8_0)(int8);
  table.name = "q8_0";
  table.pack = [](const std::byte* const* rows, int64_t k, std::byte* panel) { pack_blocks(rows, k, 1, 32, panel); };
  return table;
}
}  // namespace atb
#endif  // HWY_ONCE
