// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding for each instruction set.
#include "kernels/rotary.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotary.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using RotaryTag = hn::ScalableTag<float>;

// Products and their sum round separately, as eager frameworks do and as the scalar tails below.
HWY_ATTR void rotate_split(const float* x, float* y, int64_t half, const float* cos, const float* sin) {
  const RotaryTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const auto c = hn::LoadU(d, cos + i);
    const auto s = hn::LoadU(d, sin + i);
    const auto a = hn::LoadU(d, x + i);
    const auto b = hn::LoadU(d, x + half + i);
    hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, y + i);
    hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, y + half + i);
  }
  for (; i < half; ++i) {
    const float a = x[i];
    const float b = x[half + i];
    y[i] = a * cos[i] - b * sin[i];
    y[half + i] = b * cos[i] + a * sin[i];
  }
}

HWY_ATTR void rotate_interleaved(const float* x, float* y, int64_t half, const float* cos, const float* sin) {
  const RotaryTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const auto c = hn::LoadU(d, cos + i);
    const auto s = hn::LoadU(d, sin + i);
    hn::Vec<RotaryTag> a;
    hn::Vec<RotaryTag> b;
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    hn::StoreInterleaved2(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, y + 2 * i);
  }
  for (; i < half; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    y[2 * i] = a * cos[i] - b * sin[i];
    y[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

void rotate_heads_impl(const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t heads, int64_t head_dim,
                       int64_t half, const float* cos, const float* sin, bool interleaved) {
  for (int64_t h = 0; h < heads; ++h, x += x_stride, y += y_stride) {
    if (interleaved) {
      rotate_interleaved(x, y, half, cos, sin);
    } else {
      rotate_split(x, y, half, cos, sin);
    }
    if (x != y) std::copy(x + 2 * half, x + head_dim, y + 2 * half);
  }
}

const char* rotary_target_impl() { return hwy::TargetName(HWY_TARGET); }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atb {
HWY_EXPORT(rotate_heads_impl);
HWY_EXPORT(rotary_target_impl);

namespace kernels {

void rotate_heads(const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t heads, int64_t head_dim,
                  int64_t half, const float* cos, const float* sin, bool interleaved) {
  HWY_DYNAMIC_DISPATCH(rotate_heads_impl)(x, x_stride, y, y_stride, heads, head_dim, half, cos, sin, interleaved);
}

const char* rotary_target() { return HWY_DYNAMIC_DISPATCH(rotary_target_impl)(); }

}  // namespace kernels
}  // namespace atb
#endif  // HWY_ONCE
