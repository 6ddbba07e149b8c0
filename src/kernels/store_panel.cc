// SPDX-License-Identifier: Apache-2.0
// The last step of a matrix product: bias, activation gate, and the way to the output.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/store_panel.cc"  // NOLINT
#include "hwy/foreach_target.h"                      // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/gemm_tile-inl.h"
#include "kernels/math-inl.h"
#include "kernels/matmul.h"

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

// Stores the lanes of vector v that lie below args.count.
HWY_INLINE HWY_ATTR void store_lanes(TileVec value, float* out, int64_t count, int64_t at) {
  const TileTag d;
  if (at + static_cast<int64_t>(kVectorLanes) <= count) {
    hn::StoreU(value, d, out + at);
  } else if (at < count) {
    HWY_ALIGN float lanes[kVectorLanes];
    hn::Store(value, d, lanes);
    for (int64_t i = at; i < count; ++i) out[i] = lanes[i - at];
  }
}

template <Activation A>
HWY_ATTR void store_rows(const StoreArgs& args) {
  const TileTag d;
  // Biases of 16 lanes, zero-filled: adding 0 changes no sum (-0 + 0 = 0 aside, in every path alike).
  HWY_ALIGN float bias[kTileLanes] = {};
  HWY_ALIGN float up_bias[kTileLanes] = {};
  for (int64_t i = 0; i < args.count; ++i) {
    if (args.bias != nullptr) bias[i] = args.bias[i];
    if (args.up_bias != nullptr) up_bias[i] = args.up_bias[i];
  }
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* c = args.c + row * args.c_stride;
    float* out = args.out + row * args.out_stride;
    for (size_t at = 0; at < kTileLanes; at += kVectorLanes) {
      TileVec value = hn::Add(hn::LoadU(d, c + at), hn::Load(d, bias + at));
      if constexpr (A != Activation::kNone) {
        const TileVec up = hn::Add(hn::LoadU(d, args.up + row * args.c_stride + at), hn::Load(d, up_bias + at));
        value = hn::Mul(activate<A>(value), up);
      }
      store_lanes(value, out, args.count, static_cast<int64_t>(at));
    }
  }
}

HWY_ATTR void store_any(const StoreArgs& args) {
  switch (args.activation) {
    case Activation::kNone:
      return store_rows<Activation::kNone>(args);
    case Activation::kSilu:
      return store_rows<Activation::kSilu>(args);
    case Activation::kGeluErf:
      return store_rows<Activation::kGeluErf>(args);
    case Activation::kGeluTanh:
      return store_rows<Activation::kGeluTanh>(args);
    case Activation::kRelu:
      return store_rows<Activation::kRelu>(args);
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
