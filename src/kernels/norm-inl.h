// SPDX-License-Identifier: Apache-2.0
// Sums and scaling of one row, for norms and for kernels with a norm in their prologue. Include inside a per-target
// translation unit.

// Per-target include guard.
#if defined(ATB_KERNELS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATB_KERNELS_NORM_INL_H_
#undef ATB_KERNELS_NORM_INL_H_
#else
#define ATB_KERNELS_NORM_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include "hwy/highway.h"
#include "kernels/lanes-inl.h"
#include "kernels/norm.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using NormTag = hn::ScalableTag<float>;
using NormVec = hn::Vec<NormTag>;
using kernels::NormParameters;

// Sum of term(v, valid) over a row, v holding consecutive values: four accumulators take vectors in turn, which hides
// the latency of adding; then ((0 + 1) + (2 + 3)), then the lanes. `term` must map the zeros behind a tail to zero.
template <class Term>
HWY_INLINE HWY_ATTR float SumRow(const float* x, int64_t n, Term term) {
  const NormTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  NormVec sum0 = hn::Zero(d);
  NormVec sum1 = hn::Zero(d);
  NormVec sum2 = hn::Zero(d);
  NormVec sum3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sum0 = term(sum0, hn::LoadU(d, x + i));
    sum1 = term(sum1, hn::LoadU(d, x + i + lanes));
    sum2 = term(sum2, hn::LoadU(d, x + i + 2 * lanes));
    sum3 = term(sum3, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) sum0 = term(sum0, hn::LoadU(d, x + i));
  if (i < n) sum1 = term(sum1, LoadLanes(d, x + i, n - i, 0.0f));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

HWY_INLINE HWY_ATTR float SumOfValues(const float* x, int64_t n) {
  return SumRow(x, n, [](NormVec sum, NormVec v) HWY_ATTR { return hn::Add(sum, v); });
}

HWY_INLINE HWY_ATTR float SumOfSquares(const float* x, int64_t n) {
  return SumRow(x, n, [](NormVec sum, NormVec v) HWY_ATTR { return hn::MulAdd(v, v, sum); });
}

// Sum of (x - mean)^2. The zeros behind a tail would not stay zero, so the tail is summed by itself.
HWY_INLINE HWY_ATTR float SumOfSquaredDeviations(const float* x, int64_t n, float mean) {
  const NormTag d;
  const int64_t whole = n - n % static_cast<int64_t>(hn::Lanes(d));
  const NormVec center = hn::Set(d, mean);
  float sum = SumRow(x, whole, [center](NormVec total, NormVec v) HWY_ATTR {
    const NormVec deviation = hn::Sub(v, center);
    return hn::MulAdd(deviation, deviation, total);
  });
  for (int64_t i = whole; i < n; ++i) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

// 1 / sqrt(mean(x^2) + eps)
HWY_INLINE HWY_ATTR float RmsScale(const float* x, int64_t n, float eps) {
  return 1.0f / std::sqrt(SumOfSquares(x, n) / static_cast<float>(n) + eps);
}

// out = ((x - mean) * scale) * weight + bias, each step rounded, so that vectors and tail give equal bits. Subtracting
// a mean of 0 changes nothing.
HWY_INLINE HWY_ATTR void ScaleRow(const NormParameters& parameters, float mean, float scale, const float* x,
                                  float* out) {
  const NormTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const NormVec center = hn::Set(d, mean);
  const NormVec factor = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + lanes <= parameters.n; i += lanes) {
    NormVec v = hn::Mul(hn::Sub(hn::LoadU(d, x + i), center), factor);
    if (parameters.weight != nullptr) v = hn::Mul(v, hn::LoadU(d, parameters.weight + i));
    if (parameters.bias != nullptr) v = hn::Add(v, hn::LoadU(d, parameters.bias + i));
    hn::StoreU(v, d, out + i);
  }
  for (; i < parameters.n; ++i) {
    float v = (x[i] - mean) * scale;
    if (parameters.weight != nullptr) v *= parameters.weight[i];
    if (parameters.bias != nullptr) v += parameters.bias[i];
    out[i] = v;
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#endif  // ATB_KERNELS_NORM_INL_H_
