// SPDX-License-Identifier: Apache-2.0
// Many rows (prefill) against unpacked panels: bound by arithmetic. Exact runs the f32 tile; quantized activations run
// a tile of exact integer block sums with f32 accumulators beside them.
// Include inside a per-target translation unit.

// Per-target include guard.
#if defined(ATB_KERNELS_MANY_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATB_KERNELS_MANY_ROWS_INL_H_
#undef ATB_KERNELS_MANY_ROWS_INL_H_
#else
#define ATB_KERNELS_MANY_ROWS_INL_H_
#endif

#include <algorithm>
#include <utility>

#include "kernels/int8_dot-inl.h"
#include "kernels/matmul.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// f32 weights [k][16] a panel, panels args.panel_stride bytes apart.
HWY_INLINE HWY_ATTR void many_rows_f32(const ManyRowsArgs& args) {
  TileArgs tile;
  tile.a_stride = static_cast<size_t>(args.x_stride);
  tile.b = reinterpret_cast<const float*>(args.weights);
  tile.b_stride = kTileLanes;
  tile.b_panel_stride = static_cast<size_t>(args.panel_stride) / sizeof(float);
  tile.c_stride = static_cast<size_t>(args.c_stride);
  tile.k = static_cast<size_t>(args.k);
  tile.accumulate = args.accumulate;
  for (int64_t row = 0; row < args.rows; row += kTileRows) {
    tile.a = args.x + row * args.x_stride;
    tile.c = args.c + row * args.c_stride;
    gemm_tile(static_cast<int>(std::min<int64_t>(kTileRows, args.rows - row)), args.panels, tile);
  }
}

// Tile of quantized activations. Integer and f32 accumulators share the registers: 6 x 32 in 32 of 16 lanes,
// 3 x 8 (of a panel's two vectors) in 16 of 8.
#if HWY_TARGET <= HWY_AVX3
constexpr int kInt8TileRows = 6;
constexpr int kInt8TilePanels = 2;
#else
constexpr int kInt8TileRows = 4;
constexpr int kInt8TilePanels = 1;
#endif
constexpr int kInt8TileLanes = kInt8TilePanels * static_cast<int>(kTileLanes);

// One block of 32 terms of kInt8TilePanels panels, unpacked: scales and minima widened, a byte a weight.
struct Int8Block {
  float scales[kInt8TileLanes];
  float mins[kInt8TileLanes];
  uint8_t weights[8][4 * kInt8TileLanes];  // [group of 4 terms][lane][term]
};

inline size_t int8_unpacked_bytes(int64_t terms) {
  return static_cast<size_t>(terms / kBlockTerms) * sizeof(Int8Block);
}

// Unpacks terms of up to kInt8TilePanels panels; Format as in FewRowsInt8. Missing panels are left as they are.
template <class Format>
struct Int8Unpacker {
  template <int... I>
  static HWY_INLINE HWY_ATTR void weights(const std::byte* p, int v, size_t at, Int8Block* out,
                                          std::integer_sequence<int, I...>) {
    (hn::StoreU(Format::template weight<I>(p, v), BytesTag(), out->weights[I] + 4 * at), ...);
  }
  static HWY_INLINE HWY_ATTR void run(const std::byte* const* panels, int count, int64_t first, int64_t terms,
                                      std::byte* out) {
    auto* block = reinterpret_cast<Int8Block*>(out);
    for (int64_t b = first / kBlockTerms; b < (first + terms) / kBlockTerms; ++b, ++block) {
      for (int panel = 0; panel < count; ++panel) {
        const std::byte* p = panels[panel] + static_cast<size_t>(b) * Format::kBytes;
        for (int v = 0; v < kPanelVectors; ++v) {
          const size_t at = static_cast<size_t>(panel) * kTileLanes + static_cast<size_t>(v) * kVectorLanes;
          hn::StoreU(Format::scales(p, v), TileTag(), block->scales + at);
          hn::StoreU(Format::mins(p, v), TileTag(), block->mins + at);
          weights(p, v, at, block, std::make_integer_sequence<int, 8>());
        }
      }
    }
  }
};

// R rows x NV vectors from vector `first` of the tile.
template <class Format, int R, int NV>
struct Int8Tile {
  using Dot = typename Format::Dot;
  using EachAcc = std::make_integer_sequence<int, R * NV>;
  using EachVector = std::make_integer_sequence<int, NV>;
  using EachRow = std::make_integer_sequence<int, R>;
  using EachGroup = std::make_integer_sequence<int, 8>;

  TileVec acc[static_cast<size_t>(R * NV)];
  typename Dot::Acc dot[static_cast<size_t>(R * NV)];
  typename Dot::Weight w[static_cast<size_t>(NV)];
  TileVec scale[static_cast<size_t>(NV)];
  TileVec min[static_cast<size_t>(NV)];
  int64_t k;       // distance of rows in values
  int64_t blocks;  // and in scales

  static HWY_INLINE HWY_ATTR int32_t init(int32_t sum) { return -(Format::kZero + Dot::kOffset) * sum; }

  template <int... I>
  HWY_INLINE HWY_ATTR void zero(std::integer_sequence<int, I...>) {
    ((acc[I] = hn::Zero(TileTag())), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void read(const float* c, int64_t stride, std::integer_sequence<int, I...>) {
    ((acc[I] = hn::LoadU(TileTag(), c + (I / NV) * stride + static_cast<int64_t>(kVectorLanes) * (I % NV))), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void start(const int32_t* sums, std::integer_sequence<int, I...>) {
    ((dot[I] = Dot::start(init(sums[(I / NV) * blocks]))), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void load(const uint8_t* weights, std::integer_sequence<int, I...>) {
    ((w[I] = Dot::prepare(hn::LoadU(BytesTag(), weights + 4 * kVectorLanes * static_cast<size_t>(I)))), ...);
  }
  template <int Row, int... I>
  HWY_INLINE HWY_ATTR void step_row(Bytes x, std::integer_sequence<int, I...>) {
    ((dot[Row * NV + I] = Dot::step(dot[Row * NV + I], w[I], x)), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void step_rows(const int8_t* x, std::integer_sequence<int, I...>) {
    (step_row<I>(broadcast4(x + I * k), EachVector()), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void steps(const Int8Block& block, size_t lane, const int8_t* x,
                                 std::integer_sequence<int, I...>) {
    ((load(block.weights[I] + 4 * lane, EachVector()), step_rows(x + 4 * I, EachRow())), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void load_scales(const Int8Block& block, size_t lane, std::integer_sequence<int, I...>) {
    ((scale[I] = hn::LoadU(TileTag(), block.scales + lane + kVectorLanes * static_cast<size_t>(I))), ...);
    if constexpr (Format::kHasMin) {
      ((min[I] = hn::LoadU(TileTag(), block.mins + lane + kVectorLanes * static_cast<size_t>(I))), ...);
    }
  }
  // The same operations in the same order as FewRowsInt8::finish_row.
  template <int I>
  HWY_INLINE HWY_ATTR void finish_one(TileVec x_scale, TileVec x_min, int32_t sum) {
    const TileVec value = hn::ConvertTo(TileTag(), Dot::finish(dot[I], init(sum)));
    acc[I] = hn::MulAdd(value, hn::Mul(scale[I % NV], x_scale), acc[I]);
    if constexpr (Format::kHasMin) acc[I] = hn::MulAdd(min[I % NV], x_min, acc[I]);
  }
  template <int Row, int... I>
  HWY_INLINE HWY_ATTR void finish_row(const QuantizedRows& x, int64_t at, std::integer_sequence<int, I...>) {
    const TileVec x_scale = hn::Set(TileTag(), x.scales[at]);
    const TileVec x_min = hn::Set(TileTag(), Format::kHasMin ? x.mins[at] : 0.0f);
    (finish_one<Row * NV + I>(x_scale, x_min, x.sums[at]), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void finish_rows(const QuantizedRows& x, int64_t block, std::integer_sequence<int, I...>) {
    (finish_row<I>(x, block + I * blocks, EachVector()), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void write(float* c, int64_t stride, std::integer_sequence<int, I...>) const {
    (hn::StoreU(acc[I], TileTag(), c + (I / NV) * stride + static_cast<int64_t>(kVectorLanes) * (I % NV)), ...);
  }

  HWY_INLINE HWY_ATTR void run(const ManyRowsArgs& args, int64_t row, int first) {
    const QuantizedRows x = args.quantized.from(row);
    const size_t lane = static_cast<size_t>(first) * kVectorLanes;
    const auto* block = reinterpret_cast<const Int8Block*>(args.weights);
    k = args.quantized.k;
    blocks = args.quantized.blocks();
    float* c = args.c + row * args.c_stride + static_cast<int64_t>(lane);
    if (args.accumulate) {
      read(c, args.c_stride, EachAcc());
    } else {
      zero(EachAcc());
    }
    const int64_t count = args.k / kBlockTerms;
    for (int64_t b = 0; b < count; ++b) {
      start(x.sums + b, EachAcc());
      steps(block[b], lane, x.values + b * kBlockTerms, EachGroup());
      load_scales(block[b], lane, EachVector());
      finish_rows(x, b, EachRow());
    }
    write(c, args.c_stride, EachAcc());
  }
};

template <class Format, int R, int NV>
HWY_NOINLINE HWY_ATTR void int8_tile(const ManyRowsArgs& args, int64_t row, int first) {
  Int8Tile<Format, R, NV> tile;
  tile.run(args, row, first);
}

template <class Format, int NV, int... R>
HWY_INLINE HWY_ATTR void int8_tile_of(int rows, const ManyRowsArgs& args, int64_t row, int first,
                                      std::integer_sequence<int, R...>) {
  static_cast<void>(((rows == R + 1 && (int8_tile<Format, R + 1, NV>(args, row, first), true)) || ...));
}

// Weights as Int8Unpacker made them, all K terms.
template <class Format>
HWY_INLINE HWY_ATTR void many_rows_int8(const ManyRowsArgs& args) {
  // AVX-512 takes both panels at once; narrower targets one vector at a time where registers are few.
  constexpr int kVectors = HWY_TARGET <= HWY_AVX3 ? kInt8TilePanels : HWY_TARGET == HWY_AVX2 ? 1 : 2;
  using EachRows = std::make_integer_sequence<int, kInt8TileRows>;
  const int vectors = args.panels * kPanelVectors;
  for (int64_t row = 0; row < args.rows; row += kInt8TileRows) {
    const int rows = static_cast<int>(std::min<int64_t>(kInt8TileRows, args.rows - row));
    int first = 0;
    for (; first + kVectors <= vectors; first += kVectors) {
      int8_tile_of<Format, kVectors>(rows, args, row, first, EachRows());
    }
    if constexpr (kVectors > 1) {
      for (; first < vectors; ++first) int8_tile_of<Format, 1>(rows, args, row, first, EachRows());
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR

#endif  // ATB_KERNELS_MANY_ROWS_INL_H_
