// SPDX-License-Identifier: Apache-2.0
// Few rows (decode, small batches) against packed panels: bound by reading the weights once. Up to four panels, far
// apart in memory, are read at once as separate streams, each prefetched a little ahead.
// Include inside a per-target translation unit.

// Per-target include guard.
#if defined(ATB_KERNELS_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATB_KERNELS_FEW_ROWS_INL_H_
#undef ATB_KERNELS_FEW_ROWS_INL_H_
#else
#define ATB_KERNELS_FEW_ROWS_INL_H_
#endif

#include <utility>

#include "hwy/cache_control.h"
#include "kernels/int8_dot-inl.h"
#include "kernels/matmul.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Far enough to hide memory, near enough to stay in L1: measured best at 256 to 384 on several machines.
constexpr size_t kPrefetchBytes = 320;

template <size_t kBytes>
HWY_INLINE HWY_ATTR void prefetch_ahead(const std::byte* p) {
  for (size_t i = 0; i < kBytes; i += 64) hwy::Prefetch(p + kPrefetchBytes + i);
}

// Rows taken at once: those whose sums, with those of two streams, stay in registers.
constexpr int kRowGroup = HWY_TARGET <= HWY_AVX3 ? 8 : 4;

// Streams whose sums stay in registers beside R rows. More rows need fewer: they do more with each weight.
template <int R>
constexpr int streams_in_registers() {
  constexpr int kRegisters = HWY_TARGET <= HWY_AVX3 || kPanelVectors > 2 ? 16 : 8;
  constexpr int kStreams = kRegisters / (R * kPanelVectors);
  return kStreams >= 4 && R <= 2 ? 4 : kStreams >= 2 ? 2 : 1;
}

// Makes the compiler forget what it loaded through p: activations that it keeps in registers from one stream to the
// next would push the sums out.
template <class T>
HWY_INLINE void forget(const T*& p) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  asm volatile("" : "+r"(p));
#endif
}

// R rows x S streams, exact. Format gives the weights as f32:
//   kTerms terms in kBytes bytes of a panel, in kParts parts of kSteps steps of kStepTerms terms each,
//   Scales scales(p, v), and weight<part * kStepTerms + i>(p, scales, step, v): term i of a step, vector v of the
//   panel.
template <class Format, int R, int S>
struct FewRows {
  static constexpr int V = kPanelVectors;
  using EachAcc = std::make_integer_sequence<int, S * R * V>;
  using EachStream = std::make_integer_sequence<int, S>;
  using EachRow = std::make_integer_sequence<int, R>;
  using EachVector = std::make_integer_sequence<int, V>;
  using EachTerm = std::make_integer_sequence<int, Format::kStepTerms>;

  TileVec acc[static_cast<size_t>(S * R * V)];
  const std::byte* p[static_cast<size_t>(S)];
  const float* x[static_cast<size_t>(R)];

  template <int... I>
  HWY_INLINE HWY_ATTR void zero(std::integer_sequence<int, I...>) {
    ((acc[I] = hn::Zero(TileTag())), ...);
  }
  template <int s, int v, int... I>
  HWY_INLINE HWY_ATTR void add_rows(TileVec w, int64_t k, std::integer_sequence<int, I...>) {
    ((acc[(s * R + I) * V + v] = hn::MulAdd(w, hn::Set(TileTag(), x[I][k]), acc[(s * R + I) * V + v])), ...);
  }
  template <int s, int v, int part, int... I>
  HWY_INLINE HWY_ATTR void add_terms(const typename Format::Scales& scales, int step, int64_t k,
                                     std::integer_sequence<int, I...>) {
    constexpr int kFirst = part * Format::kStepTerms;
    (add_rows<s, v>(Format::template weight<kFirst + I>(p[s], scales, step, v), k + I, EachRow()), ...);
  }
  template <int s, int v, int part>
  HWY_INLINE HWY_ATTR void add_part(const typename Format::Scales& scales, int64_t k) {
    k += part * Format::kSteps * Format::kStepTerms;
    for (int step = 0; step < Format::kSteps; ++step, k += Format::kStepTerms) {
      add_terms<s, v, part>(scales, step, k, EachTerm());
    }
  }
  template <int s, int v>
  HWY_INLINE HWY_ATTR void add_vector(int64_t k) {
    const auto scales = Format::scales(p[s], v);
    add_part<s, v, 0>(scales, k);
    if constexpr (Format::kParts == 2) add_part<s, v, 1>(scales, k);
  }
  template <int s, int... I>
  HWY_INLINE HWY_ATTR void add_stream(int64_t k, std::integer_sequence<int, I...>) {
    prefetch_ahead<Format::kBytes>(p[s]);
    (add_vector<s, I>(k), ...);
    p[s] += Format::kBytes;
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void add_streams(int64_t k, std::integer_sequence<int, I...>) {
    (add_stream<I>(k, EachVector()), ...);
  }
  // The terms of an incomplete last chunk (only formats of one step have one).
  template <int s, int... I>
  HWY_INLINE HWY_ATTR void add_tail(int64_t k, std::integer_sequence<int, I...>) {
    (add_rows<s, I>(Format::template weight<0>(p[s], Format::scales(p[s], I), 0, I), k, EachRow()), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void add_tails(int64_t k, std::integer_sequence<int, I...>) {
    (add_tail<I>(k, EachVector()), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void write(float* out, size_t stream_stride, std::integer_sequence<int, I...>) const {
    (hn::StoreU(
         acc[I], TileTag(),
         out + static_cast<size_t>(I / (R * V)) * stream_stride + static_cast<size_t>(I % (R * V)) * kVectorLanes),
     ...);
  }

  HWY_INLINE HWY_ATTR void run(const FewRowsArgs& args, int stream, int row) {
    for (int s = 0; s < S; ++s) p[s] = args.panels[stream + s];
    for (int r = 0; r < R; ++r) x[r] = args.x[row + r];
    zero(EachAcc());
    int64_t k = 0;
    for (; k + Format::kTerms <= args.k; k += Format::kTerms) add_streams(k, EachStream());
    if constexpr (Format::kTerms == 2) {
      if (k < args.k) add_tails(k, EachStream());
    }
    const size_t stream_stride = static_cast<size_t>(args.rows) * kTileLanes;
    write(args.out + static_cast<size_t>(stream) * stream_stride + static_cast<size_t>(row) * kTileLanes, stream_stride,
          EachAcc());
  }
};

// R rows x S streams, quantized activations. Format gives the weights as bytes:
//   kBytes bytes of a block, kZero, kHasMin, Dot, scales(p, v), mins(p, v), and
//   weight<G>(p, v): bytes of terms 4 G .. 4 G + 3 of the block, vector v of the panel.
template <class Format, int R, int S>
struct FewRowsInt8 {
  static constexpr int V = kPanelVectors;
  using Dot = typename Format::Dot;
  using EachAcc = std::make_integer_sequence<int, S * R * V>;
  using EachStream = std::make_integer_sequence<int, S>;
  using EachRow = std::make_integer_sequence<int, R>;
  using EachVector = std::make_integer_sequence<int, V>;
  using EachGroup = std::make_integer_sequence<int, 8>;

  TileVec acc[static_cast<size_t>(S * R * V)];
  typename Dot::Acc dot[static_cast<size_t>(R)];
  const std::byte* p[static_cast<size_t>(S)];
  const int8_t* x[static_cast<size_t>(R)];
  const float* scales[static_cast<size_t>(R)];
  const float* mins[static_cast<size_t>(R)];
  const int32_t* sums[static_cast<size_t>(R)];

  static HWY_INLINE HWY_ATTR int32_t init(int32_t sum) { return -(Format::kZero + Dot::kOffset) * sum; }

  template <int... I>
  HWY_INLINE HWY_ATTR void zero(std::integer_sequence<int, I...>) {
    ((acc[I] = hn::Zero(TileTag())), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void forget_rows(std::integer_sequence<int, I...>) {
    (forget(x[I]), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void start(int64_t block, std::integer_sequence<int, I...>) {
    ((dot[I] = Dot::start(init(sums[I][block]))), ...);
  }
  template <int kGroup, int... I>
  HWY_INLINE HWY_ATTR void step(typename Dot::Weight w, int64_t block, std::integer_sequence<int, I...>) {
    ((dot[I] = Dot::step(dot[I], w, broadcast4(x[I] + block * kBlockTerms + 4 * kGroup))), ...);
  }
  // Groups 0, 4, 1, 5, ...: the two nibbles of a byte one after the other.
  template <int s, int v, int... I>
  HWY_INLINE HWY_ATTR void steps(int64_t block, std::integer_sequence<int, I...>) {
    (step<(I % 2) * 4 + I / 2>(Dot::prepare(Format::template weight<(I % 2) * 4 + I / 2>(p[s], v)), block, EachRow()),
     ...);
  }
  template <int s, int v, int r>
  HWY_INLINE HWY_ATTR void finish_row(TileVec scale, TileVec min, int64_t block) {
    const TileTag d;
    TileVec& sum = acc[(s * R + r) * V + v];
    const TileVec value = hn::ConvertTo(d, Dot::finish(dot[r], init(sums[r][block])));
    sum = hn::MulAdd(value, hn::Mul(scale, hn::Set(d, scales[r][block])), sum);
    if constexpr (Format::kHasMin) sum = hn::MulAdd(min, hn::Set(d, mins[r][block]), sum);
  }
  template <int s, int v, int... I>
  HWY_INLINE HWY_ATTR void finish(int64_t block, std::integer_sequence<int, I...>) {
    const TileVec scale = Format::scales(p[s], v);
    const TileVec min = Format::mins(p[s], v);
    (finish_row<s, v, I>(scale, min, block), ...);
  }
  template <int s, int v>
  HWY_INLINE HWY_ATTR void add_vector(int64_t block) {
    if constexpr (R > 1 || V > 1) forget_rows(EachRow());
    start(block, EachRow());
    steps<s, v>(block, EachGroup());
    finish<s, v>(block, EachRow());
  }
  template <int s, int... I>
  HWY_INLINE HWY_ATTR void add_stream(int64_t block, std::integer_sequence<int, I...>) {
    prefetch_ahead<Format::kBytes>(p[s]);
    (add_vector<s, I>(block), ...);
    p[s] += Format::kBytes;
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void add_streams(int64_t block, std::integer_sequence<int, I...>) {
    (add_stream<I>(block, EachVector()), ...);
  }
  template <int... I>
  HWY_INLINE HWY_ATTR void write(float* out, size_t stream_stride, std::integer_sequence<int, I...>) const {
    (hn::StoreU(
         acc[I], TileTag(),
         out + static_cast<size_t>(I / (R * V)) * stream_stride + static_cast<size_t>(I % (R * V)) * kVectorLanes),
     ...);
  }

  HWY_INLINE HWY_ATTR void run(const FewRowsArgs& args, int stream, int row) {
    for (int s = 0; s < S; ++s) p[s] = args.panels[stream + s];
    for (int r = 0; r < R; ++r) {
      const QuantizedRows q = args.quantized.from(row + r);
      x[r] = q.values;
      scales[r] = q.scales;
      mins[r] = q.mins;
      sums[r] = q.sums;
    }
    zero(EachAcc());
    const int64_t blocks = args.quantized.blocks();
    for (int64_t block = 0; block < blocks; ++block) add_streams(block, EachStream());
    const size_t stream_stride = static_cast<size_t>(args.rows) * kTileLanes;
    write(args.out + static_cast<size_t>(stream) * stream_stride + static_cast<size_t>(row) * kTileLanes, stream_stride,
          EachAcc());
  }
};

// Loops of FewRowsArgs over groups of rows and of as many streams as registers hold.
template <template <class, int, int> class Kernel, class Format, int R, int S>
HWY_NOINLINE HWY_ATTR void few_rows_tile(const FewRowsArgs& args, int stream, int row) {
  Kernel<Format, R, S> kernel;
  kernel.run(args, stream, row);
}

template <template <class, int, int> class Kernel, class Format, int R>
HWY_INLINE HWY_ATTR void few_rows_streams(const FewRowsArgs& args, int row) {
  constexpr int kStreams = streams_in_registers<R>();
  int stream = 0;
  for (; stream + kStreams <= args.streams; stream += kStreams) {
    few_rows_tile<Kernel, Format, R, kStreams>(args, stream, row);
  }
  if constexpr (kStreams == 4 && R == 1) {
    for (; stream + 2 <= args.streams; stream += 2) few_rows_tile<Kernel, Format, R, 2>(args, stream, row);
  }
  if constexpr (kStreams > 1) {
    for (; stream < args.streams; ++stream) few_rows_tile<Kernel, Format, R, 1>(args, stream, row);
  }
}

template <template <class, int, int> class Kernel, class Format>
HWY_INLINE HWY_ATTR void few_rows_loop(const FewRowsArgs& args) {
  int row = 0;
  if constexpr (kRowGroup == 8) {
    for (; row + 8 <= args.rows; row += 8) few_rows_streams<Kernel, Format, 8>(args, row);
  }
  for (; row + 4 <= args.rows; row += 4) few_rows_streams<Kernel, Format, 4>(args, row);
  switch (args.rows - row) {
    case 1:
      return few_rows_streams<Kernel, Format, 1>(args, row);
    case 2:
      return few_rows_streams<Kernel, Format, 2>(args, row);
    case 3:
      return few_rows_streams<Kernel, Format, 3>(args, row);
    default:
      return;
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR

#endif  // ATB_KERNELS_FEW_ROWS_INL_H_
