// SPDX-License-Identifier: Apache-2.0
// The f32 register tile of many-row products: c[R][P * 16] (+)= a[R][k] * b[k][P * 16], a broadcast, b vectors.
// Include inside a per-target translation unit.

// Per-target include guard.
#if defined(ATB_KERNELS_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATB_KERNELS_GEMM_TILE_INL_H_
#undef ATB_KERNELS_GEMM_TILE_INL_H_
#else
#define ATB_KERNELS_GEMM_TILE_INL_H_
#endif

#include <stddef.h>

#include <utility>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Outputs are cut in panels of 16 lanes: one vector of AVX-512, two of AVX2, four of NEON.
constexpr size_t kTileLanes = 16;
using TileTag = hn::CappedTag<float, kTileLanes>;
using TileVec = hn::Vec<TileTag>;
constexpr size_t kVectorLanes = hn::MaxLanes(TileTag());
constexpr int kPanelVectors = static_cast<int>(kTileLanes / kVectorLanes);

// The largest tile whose accumulators, b vectors and broadcast stay in registers: rows x panels of 16. 12 x 32 in 32
// registers of 16 lanes, 6 x 16 in 16 registers of 8 and in 32 of 4.
#if HWY_TARGET <= HWY_AVX3
constexpr int kTileRows = 12;
constexpr int kTilePanels = 2;
#else
constexpr int kTileRows = 6;
constexpr int kTilePanels = 1;
#endif

// Where a tile reads and writes. Strides are in elements and free.
struct TileArgs {
  const float* a;  // a[r * a_stride + k]
  size_t a_stride;
  const float* b;  // b[k * b_stride + p * b_panel_stride + lane]
  size_t b_stride;
  size_t b_panel_stride;  // from one panel of 16 lanes to the next
  float* c;               // c[r * c_stride + p * 16 + lane]
  size_t c_stride;
  size_t k;         // number of terms
  bool accumulate;  // start from c instead of zero
};

// Accumulators of R rows x P panels. Every index is a compile-time constant (index sequences, always inlined): a loop
// over an array of vectors would keep it in memory, at a third of the speed.
template <int R, int P>
struct GemmTile {
  static constexpr int kVectors = P * kPanelVectors;
  // Three rows share a pointer: x86 reaches p, p + s and p + 2 s by addressing alone, so 12 rows take 4 registers.
  static constexpr int kRowsPerPointer = 3;
  static constexpr int kPointers = (R + kRowsPerPointer - 1) / kRowsPerPointer;
  using EachAcc = std::make_integer_sequence<int, R * kVectors>;
  using EachVector = std::make_integer_sequence<int, kVectors>;
  using EachRow = std::make_integer_sequence<int, R>;
  using EachPointer = std::make_integer_sequence<int, kPointers>;

  TileVec acc[static_cast<size_t>(R * kVectors)];
  TileVec b[static_cast<size_t>(kVectors)];
  const float* rows[static_cast<size_t>(kPointers)];

  static constexpr size_t c_offset(int i, size_t stride) {
    return static_cast<size_t>(i / kVectors) * stride + static_cast<size_t>(i % kVectors) * kVectorLanes;
  }
  static constexpr size_t b_offset(int i, size_t stride) {
    return static_cast<size_t>(i / kPanelVectors) * stride + static_cast<size_t>(i % kPanelVectors) * kVectorLanes;
  }

  template <int... I>
  HWY_INLINE HWY_ATTR void zero(std::integer_sequence<int, I...>) {
    ((acc[I] = hn::Zero(TileTag())), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void read(const float* c, size_t stride, std::integer_sequence<int, I...>) {
    ((acc[I] = hn::LoadU(TileTag(), c + c_offset(I, stride))), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void write(float* c, size_t stride, std::integer_sequence<int, I...>) const {
    (hn::StoreU(acc[I], TileTag(), c + c_offset(I, stride)), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void set_rows(const float* a, size_t stride, std::integer_sequence<int, I...>) {
    ((rows[I] = a + static_cast<size_t>(I * kRowsPerPointer) * stride), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void next_k(std::integer_sequence<int, I...>) {
    ((rows[I] += 1), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void load_b(const float* p, size_t panel_stride, std::integer_sequence<int, I...>) {
    ((b[I] = hn::LoadU(TileTag(), p + b_offset(I, panel_stride))), ...);
  }
  template <int Row, int... I>
  HWY_INLINE HWY_ATTR void add_row(TileVec a, std::integer_sequence<int, I...>) {
    ((acc[Row * kVectors + I] = hn::MulAdd(a, b[I], acc[Row * kVectors + I])), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void add_rows(size_t stride, std::integer_sequence<int, I...>) {
    (add_row<I>(hn::Set(TileTag(), rows[I / kRowsPerPointer][static_cast<size_t>(I % kRowsPerPointer) * stride]),
                EachVector()),
     ...);
  }

  HWY_INLINE HWY_ATTR void run(const TileArgs& args) {
    const size_t a_stride = args.a_stride;
    const size_t b_panel_stride = args.b_panel_stride;
    if (args.accumulate) {
      read(args.c, args.c_stride, EachAcc());
    } else {
      zero(EachAcc());
    }
    set_rows(args.a, a_stride, EachPointer());
    const float* b_row = args.b;
    for (size_t k = 0; k < args.k; ++k, b_row += args.b_stride) {
      load_b(b_row, b_panel_stride, EachVector());
      add_rows(a_stride, EachRow());
      next_k(EachPointer());
    }
    write(args.c, args.c_stride, EachAcc());
  }
};

// For each output one chain acc = fma(a[k], b[k], acc), k ascending: any split of k over calls (accumulate), any R and
// any P give the same bits.
template <int R, int P>
HWY_NOINLINE HWY_ATTR void gemm_tile(const TileArgs& args) {
  GemmTile<R, P> tile;
  tile.run(args);
}

template <int P, int... R>
HWY_INLINE HWY_ATTR void gemm_tile_of(int rows, const TileArgs& args, std::integer_sequence<int, R...>) {
  static_cast<void>(((rows == R + 1 && (gemm_tile<R + 1, P>(args), true)) || ...));
}

// The tile for 1 <= rows <= kTileRows and 1 <= panels <= kTilePanels known at run time.
HWY_INLINE HWY_ATTR void gemm_tile(int rows, int panels, const TileArgs& args) {
  using EachRows = std::make_integer_sequence<int, kTileRows>;
  if (panels == kTilePanels) {
    if (rows == kTileRows) return gemm_tile<kTileRows, kTilePanels>(args);
    gemm_tile_of<kTilePanels>(rows, args, EachRows());
  } else {
    gemm_tile_of<1>(rows, args, EachRows());
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#endif  // ATB_KERNELS_GEMM_TILE_INL_H_
