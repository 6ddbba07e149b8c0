// SPDX-License-Identifier: Apache-2.0
// Row norms for each instruction set.
#include "kernels/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {

void norm_row_impl(const NormParameters& parameters, const float* x, float* out) {
  const int64_t n = parameters.n;
  if (n == 0) return;
  if (!parameters.layer) return ScaleRow(parameters, 0.0f, RmsScale(x, n, parameters.eps), x, out);
  const float mean = SumOfValues(x, n) / static_cast<float>(n);
  const float variance = SumOfSquaredDeviations(x, n, mean) / static_cast<float>(n);
  ScaleRow(parameters, mean, 1.0f / std::sqrt(variance + parameters.eps), x, out);
}

void add_rows_impl(const float* a, const float* b, int64_t n, float* out) {
  const NormTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  for (; i < n; ++i) out[i] = a[i] + b[i];
}

const char* norm_target_impl() { return hwy::TargetName(HWY_TARGET); }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atb {
HWY_EXPORT(norm_row_impl);
HWY_EXPORT(add_rows_impl);
HWY_EXPORT(norm_target_impl);

namespace kernels {

void norm_row(const NormParameters& parameters, const float* x, float* out) {
  HWY_DYNAMIC_DISPATCH(norm_row_impl)(parameters, x, out);
}

void add_rows(const float* a, const float* b, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(add_rows_impl)(a, b, n, out);
}

const char* norm_target() { return HWY_DYNAMIC_DISPATCH(norm_target_impl)(); }

}  // namespace kernels
}  // namespace atb
#endif  // HWY_ONCE
