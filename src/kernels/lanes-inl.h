// SPDX-License-Identifier: Apache-2.0
// The last vector of a row: nothing is read or written behind its values. Include inside a per-target translation unit.

// Per-target include guard.
#if defined(ATB_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATB_KERNELS_LANES_INL_H_
#undef ATB_KERNELS_LANES_INL_H_
#else
#define ATB_KERNELS_LANES_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A vector of the `count` values at `from`; lanes behind them are `rest`. Any count: what fills a vector is loaded
// whole.
template <class D, class V = hn::Vec<D>>
HWY_INLINE HWY_ATTR V LoadLanes(D d, const float* from, int64_t count, float rest) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (count >= lanes) return hn::LoadU(d, from);
  HWY_ALIGN float padded[hn::MaxLanes(d)];
  for (int64_t lane = 0; lane < lanes; ++lane) padded[lane] = lane < count ? from[lane] : rest;
  return hn::Load(d, padded);
}

// Stores the first `count` lanes of `value`, all where there are no more. Any count: none for 0 and below.
template <class D, class V = hn::Vec<D>>
HWY_INLINE HWY_ATTR void StoreLanes(D d, V value, float* out, int64_t count) {
  if (count >= static_cast<int64_t>(hn::Lanes(d))) return hn::StoreU(value, d, out);
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(value, d, lanes);
  for (int64_t lane = 0; lane < count; ++lane) out[lane] = lanes[lane];
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#endif  // ATB_KERNELS_LANES_INL_H_
