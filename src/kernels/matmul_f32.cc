// SPDX-License-Identifier: Apache-2.0
// Matrix products against f32 weights.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_f32.cc"  // NOLINT
#include "hwy/foreach_target.h"                     // IWYU pragma: keep
// After foreach_target.h.
#include "kernels/matmul_format-inl.h"
#include "kernels/matmul_formats.h"
#include "kernels/pack_util.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR  // below the least target, see require_cpu_target()

MatmulFormat make_matmul_f32() { return {}; }

#else
namespace {

struct F32 {
  static constexpr bool kIsF32 = true;
  static constexpr int kTerms = 1;
  static constexpr int kParts = 1;
  static constexpr int kSteps = 1;
  static constexpr int kStepTerms = 1;
  static constexpr size_t kBytes = 4 * kTileLanes;
  struct Scales {};
  static HWY_INLINE HWY_ATTR Scales scales(const std::byte*, int) { return {}; }
  template <int I>
  static HWY_INLINE HWY_ATTR TileVec weight(const std::byte* p, Scales, int, int v) {
    return hn::LoadU(TileTag(), reinterpret_cast<const float*>(p) + static_cast<size_t>(v) * kVectorLanes);
  }
};

}  // namespace

MatmulFormat make_matmul_f32() { return exact_format<F32>(); }

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atb {
HWY_EXPORT(make_matmul_f32);

MatmulFormat matmul_f32() {
  MatmulFormat table = HWY_DYNAMIC_DISPATCH(make_matmul_f32)();
  table.name = "f32";
  table.pack = pack_elements<uint32_t>;
  return table;
}
}  // namespace atb
#endif  // HWY_ONCE
