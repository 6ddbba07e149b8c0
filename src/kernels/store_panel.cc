// SPDX-License-Identifier: Apache-2.0
// The last step of a matrix product: bias, activation, gate, residual, and the way to the output.
#include "kernels/store_panel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/store_panel.cc"  // NOLINT
#include "hwy/foreach_target.h"                      // IWYU pragma: keep
// After foreach_target.h.
#include <algorithm>

#include "hwy/highway.h"
#include "kernels/gemm_tile-inl.h"
#include "kernels/lanes-inl.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <Activation A>
HWY_INLINE HWY_ATTR TileVec activate(TileVec x) {
  const TileTag d;
  if constexpr (A == Activation::kSilu) return Silu(d, x);
  if constexpr (A == Activation::kGeluErf) return GeluErf(d, x);
  if constexpr (A == Activation::kGeluTanh) return GeluTanh(d, x);
  if constexpr (A == Activation::kRelu) return Relu(d, x);
  return x;
}

template <Activation A, bool kGated, bool kResidual>
HWY_ATTR void store_rows(const StoreArgs& args) {
  const TileTag d;
  // Biases of 16 lanes, zero-filled: adding 0 changes no sum (-0 + 0 = 0 aside, in every path alike).
  HWY_ALIGN float bias[kTileLanes] = {};
  HWY_ALIGN float up_bias[kTileLanes] = {};
  if (args.bias != nullptr) std::copy(args.bias, args.bias + args.count, bias);
  if (kGated && args.up_bias != nullptr) std::copy(args.up_bias, args.up_bias + args.count, up_bias);
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* c = args.c + row * args.c_stride;
    float* out = args.out + row * args.out_stride;
    for (size_t at = 0; at < kTileLanes; at += kVectorLanes) {
      const int64_t left = args.count - static_cast<int64_t>(at);
      TileVec value = activate<A>(hn::Add(hn::LoadU(d, c + at), hn::Load(d, bias + at)));
      if constexpr (kGated) {
        const float* up = args.up + row * args.c_stride;
        value = hn::Mul(value, hn::Add(hn::LoadU(d, up + at), hn::Load(d, up_bias + at)));
      }
      if constexpr (kResidual) {
        const float* residual = args.residual + row * args.residual_stride;
        value = hn::Add(value, LoadLanes(d, residual + at, left, 0.0f));
      }
      StoreLanes(d, value, out + at, left);
    }
  }
}

template <Activation A>
HWY_INLINE HWY_ATTR void store_parts(const StoreArgs& args) {
  if (args.up != nullptr) return store_rows<A, true, false>(args);
  if (args.residual != nullptr) return store_rows<A, false, true>(args);
  store_rows<A, false, false>(args);
}

HWY_ATTR void store_any(const StoreArgs& args) {
  switch (args.activation) {
    case Activation::kNone:
      return store_parts<Activation::kNone>(args);
    case Activation::kSilu:
      return store_parts<Activation::kSilu>(args);
    case Activation::kGeluErf:
      return store_parts<Activation::kGeluErf>(args);
    case Activation::kGeluTanh:
      return store_parts<Activation::kGeluTanh>(args);
    case Activation::kRelu:
      return store_parts<Activation::kRelu>(args);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atb {
HWY_EXPORT(store_any);

void store_panel(const StoreArgs& args) { HWY_DYNAMIC_DISPATCH(store_any)(args); }

}  // namespace atb
#endif  // HWY_ONCE
