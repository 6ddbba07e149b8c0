// SPDX-License-Identifier: Apache-2.0
// Matrix products against bf16 weights, widened in registers (few rows) or once a row block.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_bf16.cc"  // NOLINT
#include "hwy/foreach_target.h"                      // IWYU pragma: keep
// After foreach_target.h.
#include "kernels/matmul_format-inl.h"
#include "kernels/matmul_formats.h"
#include "kernels/pack_util.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR  // below the least target, see require_cpu_target()

MatmulFormat make_matmul_bf16() { return {}; }

#else
namespace {

// A 32-bit word of a lane holds terms 2i (low half) and 2i + 1: a shift widens one, a mask the other.
struct BF16 {
  static constexpr bool kIsF32 = false;
  static constexpr int kTerms = 2;
  static constexpr int kParts = 1;
  static constexpr int kSteps = 1;
  static constexpr int kStepTerms = 2;
  static constexpr size_t kBytes = 4 * kTileLanes;
  struct Scales {};
  static HWY_INLINE HWY_ATTR Scales scales(const std::byte*, int) { return {}; }
  template <int I>
  static HWY_INLINE HWY_ATTR TileVec weight(const std::byte* p, Scales, int, int v) {
    const hn::RebindToUnsigned<TileTag> d32;
    const auto word = hn::LoadU(d32, reinterpret_cast<const uint32_t*>(p) + static_cast<size_t>(v) * kVectorLanes);
    return hn::BitCast(TileTag(), I == 0 ? hn::ShiftLeft<16>(word) : hn::And(word, hn::Set(d32, 0xffff0000u)));
  }
};

}  // namespace

MatmulFormat make_matmul_bf16() { return exact_format<BF16>(); }

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atb {
HWY_EXPORT(make_matmul_bf16);

namespace {

void pack_pairs(const std::byte* const* rows, int64_t k, std::byte* panel) {
  for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
    if (rows[lane] == nullptr) continue;
    for (int64_t i = 0; i < k; ++i) {
      std::memcpy(panel + 2 * (2 * (i / 2 * kPanelLanes + lane) + i % 2), rows[lane] + 2 * i, 2);
    }
  }
}

}  // namespace

MatmulFormat matmul_bf16() {
  MatmulFormat table = HWY_DYNAMIC_DISPATCH(make_matmul_bf16)();
  table.name = "bf16";
  table.pack = pack_pairs;
  return table;
}
}  // namespace atb
#endif  // HWY_ONCE
