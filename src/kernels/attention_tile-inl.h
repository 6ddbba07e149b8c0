// SPDX-License-Identifier: Apache-2.0
// Register tile of attention: R rows of A times NV vectors of B read straight from cache blocks (f32, or bf16 widened
// on load). Accumulators stay in registers; each adds along k in ascending order with fused multiply-adds, so that a
// row's bits do not depend on R or NV. Serves Q K^T (lanes are keys) and P V (lanes are features).
#if defined(ATB_KERNELS_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATB_KERNELS_ATTENTION_TILE_INL_H_
#undef ATB_KERNELS_ATTENTION_TILE_INL_H_
#else
#define ATB_KERNELS_ATTENTION_TILE_INL_H_
#endif

#include <cstdint>
#include <utility>

#include "core/kv_layout.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace attention {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors of at most one key panel.
using F32 = hn::CappedTag<float, static_cast<size_t>(kKeyPanel)>;
using VF32 = hn::Vec<F32>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
constexpr int kPanelVectors = static_cast<int>(kKeyPanel) / kLanes;

// Vectors of B beside R rows: R * NV accumulators and min(R, NV) + 1 operands must fit the registers.
constexpr int tile_vectors(int rows) {
  const int vectors = (HWY_TARGET <= HWY_AVX3 || rows <= 3) ? 4 : 2;
  return vectors < kPanelVectors ? kPanelVectors : vectors;
}

HWY_INLINE HWY_ATTR VF32 load(const float* p) { return hn::LoadU(F32(), p); }
HWY_INLINE HWY_ATTR VF32 load(const hwy::bfloat16_t* p) {
  return hn::PromoteTo(F32(), hn::LoadU(hn::Rebind<hwy::bfloat16_t, F32>(), p));
}

// Tiles of so few rows wait for memory rather than for arithmetic: they fetch ahead what is read next.
constexpr bool fetches_ahead(int rows) { return rows <= 4; }

// R * NV accumulators. Every index is a compile-time constant: a loop over an array would keep it in memory.
template <int R, int NV>
struct Tile {
  VF32 acc[static_cast<size_t>(R * NV)];

  HWY_INLINE HWY_ATTR void zero() { zero_all(std::make_integer_sequence<int, R * NV>()); }
  HWY_INLINE HWY_ATTR void read(const float* c, int64_t stride) {
    read_all(c, stride, std::make_integer_sequence<int, R * NV>());
  }
  HWY_INLINE HWY_ATTR void write(float* c, int64_t stride) const {
    write_all(c, stride, std::make_integer_sequence<int, R * NV>());
  }

  // Adds a[r][i] * b[v][i * b_step] over i = 0 .. count - 1. Where tiles fetch ahead, ahead[v][i * b_step] is what will
  // be read in the place of b next.
  template <class T>
  HWY_INLINE HWY_ATTR void add(const float* const (&a)[R], const T* const (&b)[NV], const T* const (&ahead)[NV],
                               int64_t b_step, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (fetches_ahead(R)) fetch(ahead, i * b_step, std::make_integer_sequence<int, NV>());
      if constexpr (R < NV) {
        hold_rows(a, b, i, i * b_step, std::make_integer_sequence<int, R>(), std::make_integer_sequence<int, NV>());
      } else {
        hold_vectors(a, b, i, i * b_step, std::make_integer_sequence<int, R>(), std::make_integer_sequence<int, NV>());
      }
    }
  }

 private:
  // Into the second-level cache: the fill buffers of the first are too few to cover its latency (decode ran 1.1 to 1.5
  // times as fast as with a fetch into the first, up to 1.6 times as without). Vectors that share a line fetch it once.
  template <class T, int... J>
  HWY_INLINE HWY_ATTR void fetch(const T* const (&ahead)[NV], int64_t at, std::integer_sequence<int, J...>) {
    constexpr int kVectorsPerLine = kLanes * sizeof(T) >= 64 ? 1 : 2;
    ((J % kVectorsPerLine == 0 ? __builtin_prefetch(ahead[J] + at, 0, 2) : void()), ...);
  }
  // The narrower operand is held in registers, the other streams.
  template <class T, int... I, int... J>
  HWY_INLINE HWY_ATTR void hold_vectors(const float* const (&a)[R], const T* const (&b)[NV], int64_t at_a, int64_t at_b,
                                        std::integer_sequence<int, I...>, std::integer_sequence<int, J...> vectors) {
    const VF32 held[NV] = {load(b[J] + at_b)...};
    (add_row<I>(hn::Set(F32(), a[I][at_a]), held, vectors), ...);
  }
  template <class T, int... I, int... J>
  HWY_INLINE HWY_ATTR void hold_rows(const float* const (&a)[R], const T* const (&b)[NV], int64_t at_a, int64_t at_b,
                                     std::integer_sequence<int, I...> rows, std::integer_sequence<int, J...>) {
    const VF32 held[R] = {hn::Set(F32(), a[I][at_a])...};
    (add_column<J>(held, load(b[J] + at_b), rows), ...);
  }
  template <int I, int... J>
  HWY_INLINE HWY_ATTR void add_row(VF32 a, const VF32 (&b)[NV], std::integer_sequence<int, J...>) {
    ((acc[I * NV + J] = hn::MulAdd(a, b[J], acc[I * NV + J])), ...);
  }
  template <int J, int... I>
  HWY_INLINE HWY_ATTR void add_column(const VF32 (&a)[R], VF32 b, std::integer_sequence<int, I...>) {
    ((acc[I * NV + J] = hn::MulAdd(a[I], b, acc[I * NV + J])), ...);
  }
  template <int... K>
  HWY_INLINE HWY_ATTR void zero_all(std::integer_sequence<int, K...>) {
    ((acc[K] = hn::Zero(F32())), ...);
  }
  template <int... K>
  HWY_INLINE HWY_ATTR void read_all(const float* c, int64_t stride, std::integer_sequence<int, K...>) {
    ((acc[K] = hn::LoadU(F32(), c + (K / NV) * stride + (K % NV) * kLanes)), ...);
  }
  template <int... K>
  HWY_INLINE HWY_ATTR void write_all(float* c, int64_t stride, std::integer_sequence<int, K...>) const {
    (hn::StoreU(acc[K], F32(), c + (K / NV) * stride + (K % NV) * kLanes), ...);
  }
};

}  // namespace attention
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
