// SPDX-License-Identifier: Apache-2.0
// Elementwise functions and softmax for each instruction set.
#include "kernels/pointwise.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pointwise.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/lanes-inl.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::Pointwise;

using PointwiseTag = hn::ScalableTag<float>;
using PointwiseVec = hn::Vec<PointwiseTag>;

constexpr int64_t kGathered = 64;  // elements that are made dense at a time

template <Pointwise F>
HWY_INLINE HWY_ATTR PointwiseVec value_of(PointwiseVec x) {
  const PointwiseTag d;
  if constexpr (F == Pointwise::kExp) return Exp(d, x);
  if constexpr (F == Pointwise::kTanh) return Tanh(d, x);
  if constexpr (F == Pointwise::kSigmoid) return Sigmoid(d, x);
  if constexpr (F == Pointwise::kSilu) return Silu(d, x);
  if constexpr (F == Pointwise::kGeluErf) return GeluErf(d, x);
  if constexpr (F == Pointwise::kGeluTanh) return GeluTanh(d, x);
}

template <Pointwise F>
HWY_ATTR void apply_dense(const float* x, int64_t n, float* out) {
  const PointwiseTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) StoreLanes(d, value_of<F>(LoadLanes(d, x + i, n - i, 0.0f)), out + i, n - i);
}

template <Pointwise F>
HWY_ATTR void apply_function(const float* x, int64_t stride, int64_t n, float* out) {
  if (stride == 1) return apply_dense<F>(x, n, out);
  for (int64_t at = 0; at < n; at += kGathered) {  // gathered a piece at a time
    float piece[kGathered];
    const int64_t count = std::min(kGathered, n - at);
    for (int64_t i = 0; i < count; ++i) piece[i] = x[(at + i) * stride];
    apply_dense<F>(piece, count, out + at);
  }
}

HWY_ATTR void apply_pointwise_impl(Pointwise function, const float* x, int64_t stride, int64_t n, float* out) {
  switch (function) {
    case Pointwise::kExp:
      return apply_function<Pointwise::kExp>(x, stride, n, out);
    case Pointwise::kTanh:
      return apply_function<Pointwise::kTanh>(x, stride, n, out);
    case Pointwise::kSigmoid:
      return apply_function<Pointwise::kSigmoid>(x, stride, n, out);
    case Pointwise::kSilu:
      return apply_function<Pointwise::kSilu>(x, stride, n, out);
    case Pointwise::kGeluErf:
      return apply_function<Pointwise::kGeluErf>(x, stride, n, out);
    case Pointwise::kGeluTanh:
      return apply_function<Pointwise::kGeluTanh>(x, stride, n, out);
  }
}

HWY_ATTR void softmax_row_impl(const float* x, int64_t n, float* out) {
  const PointwiseTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  PointwiseVec most = hn::Set(d, kNone);
  for (int64_t i = 0; i < n; i += lanes) {
    const PointwiseVec v = LoadLanes(d, x + i, n - i, kNone);
    most = hn::IfThenElse(hn::Gt(v, most), v, most);  // NaN is no maximum; its row becomes NaN below
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
  if (largest == kNone) {
    // All are -inf, or NaN beside them: x - x is NaN for both, so tell them apart first.
    bool nan = false;
    for (int64_t i = 0; i < n; ++i) nan = nan || x[i] != x[i];
    std::fill(out, out + n, nan ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
    return;
  }
  PointwiseVec sums = hn::Zero(d);
  for (int64_t i = 0; i < n; i += lanes) {
    const PointwiseVec e = Exp(d, hn::Sub(LoadLanes(d, x + i, n - i, kNone), hn::Set(d, largest)));
    sums = hn::Add(sums, e);
    StoreLanes(d, e, out + i, n - i);
  }
  const PointwiseVec sum = hn::SumOfLanes(d, sums);
  for (int64_t i = 0; i < n; i += lanes) {
    StoreLanes(d, hn::Div(LoadLanes(d, out + i, n - i, 0.0f), sum), out + i, n - i);
  }
}

const char* pointwise_target_impl() { return hwy::TargetName(HWY_TARGET); }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atb {
HWY_EXPORT(apply_pointwise_impl);
HWY_EXPORT(softmax_row_impl);
HWY_EXPORT(pointwise_target_impl);

namespace kernels {

void apply_pointwise(Pointwise function, const float* x, int64_t stride, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(apply_pointwise_impl)(function, x, stride, n, out);
}

void softmax_row(const float* x, int64_t n, float* out) { HWY_DYNAMIC_DISPATCH(softmax_row_impl)(x, n, out); }

const char* pointwise_target() { return HWY_DYNAMIC_DISPATCH(pointwise_target_impl)(); }

}  // namespace kernels
}  // namespace atb
#endif  // HWY_ONCE
