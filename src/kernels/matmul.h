// SPDX-License-Identifier: Apache-2.0
// Matrix products against weights packed in panels: one function table a weight format.
//
// A panel holds 16 output features over all K terms; the same panel serves one row and many. Every output is one chain
// over k, whatever the rows, blocking or split of work, so that results are the same bits:
//   exact  acc = fma(w[k], x[k], acc), k ascending; w decoded to f32 exactly
//   int8   per block of 32: acc = fma(float(dot), wscale * xscale, acc), then for formats with a minimum
//          acc = fma(wmin, xscale * sum(xq), acc); dot = sum of (w - zero) * xq, exact in 32 bits
// Layouts of a panel (panel_bytes() in all; lane = output feature):
//   f32   [K][16] f32                           f16   [K][16] f16
//   bf16  [ceil(K / 2)][16][2] bf16: a 32-bit word holds terms 2i and 2i + 1, so that a shift or a mask widens them
//   q8_0  per block: 16 f16 scales, then [8][16 lanes][4 k] signed bytes
//   q4_0  per block: 16 f16 scales, then [4][16 lanes][4 k] bytes: low nibble term 4j + i, high nibble 16 + 4j + i
//   q4_1  as q4_0 with 16 f16 minima after the scales
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace atb {

constexpr int64_t kPanelLanes = 16;  // output features of a panel
constexpr int64_t kBlockTerms = 32;  // terms of a block that share a scale, in weights and quantized activations
constexpr int kMaxStreams = 4;       // panels that a few-rows kernel reads at once
constexpr int kMaxFewRows = 16;      // rows up to which weights are read straight from panels

// Rows quantized to int8, each block of 32 with its own scale.
struct QuantizedRows {
  int8_t* values = nullptr;  // [rows][K], in [-127, 127]
  float* scales = nullptr;   // [rows][K / 32]: x = scale * value
  int32_t* sums = nullptr;   // [rows][K / 32]: sum of values
  float* mins = nullptr;     // [rows][K / 32]: scale * sum, what a weight's minimum is multiplied by
  int64_t k = 0;

  int64_t blocks() const { return k / kBlockTerms; }
  static size_t bytes(int64_t rows, int64_t k);  // of memory for bind(), a multiple of 64
  static QuantizedRows bind(std::byte* memory, int64_t rows, int64_t k);
  // The same from this row and term (a multiple of 32) on; k stays the distance of rows.
  QuantizedRows from(int64_t row, int64_t term = 0) const {
    const int64_t at = row * blocks() + term / kBlockTerms;
    return {values + row * k + term, scales + at, sums + at, mins + at, k};
  }
};

// Few rows against up to four panels: out[stream][row][16].
struct FewRowsArgs {
  const std::byte* panels[kMaxStreams];
  int streams;
  int rows;  // 1 .. kMaxFewRows
  int64_t k;
  const float* const* x;    // exact: one pointer a row
  QuantizedRows quantized;  // int8
  float* out;
};

// Many rows against the panels of one tile: c[row][panel * 16 + lane], row stride c_stride. Adds `k` terms.
struct ManyRowsArgs {
  const std::byte* weights;  // as MatmulFormat::unpack made them; the first panel itself where that is null
  int64_t panel_stride;      // bytes from one panel to the next, only where unpack is null
  int panels;                // 1 .. tile_panels
  int64_t rows;
  int64_t k;
  const float* x;  // exact; row stride in elements
  int64_t x_stride;
  QuantizedRows quantized;  // int8; its k is the row stride, its first value the first term
  float* c;
  int64_t c_stride;
  bool accumulate;  // start from c (exact only)
};

// Functions of one weight format on one CPU target, for one kind of activations. They cannot fail.
struct MatmulFormat {
  std::string_view name;    // name of the dtype or encoding: "bf16", "q4_1"
  std::string_view target;  // "AVX3_DL"
  bool int8 = false;        // activations are quantized
  int64_t block_terms = 1;  // K is a multiple of this
  int tile_rows = 1;        // the many-rows tile: rows (row blocks are multiples) and panels
  int tile_panels = 1;
  int64_t pass_terms = 0;  // terms that many_rows should take at once; 0: all K
  // Bytes of a panel of k terms.
  size_t (*panel_bytes)(int64_t k) = nullptr;
  // Packs 16 rows as stored (null: all zero) into a panel.
  void (*pack)(const std::byte* const* rows, int64_t k, std::byte* panel) = nullptr;
  void (*few_rows)(const FewRowsArgs&) = nullptr;
  void (*many_rows)(const ManyRowsArgs&) = nullptr;
  // Prepares terms [first, first + terms) of `count` panels for many_rows, which then reads them many times. Null where
  // panels are read as they are. `first` is a multiple of 32.
  void (*unpack)(const std::byte* const* panels, int count, int64_t first, int64_t terms, std::byte* out) = nullptr;
  // Bytes that unpack() writes for tile_panels panels of `terms` terms.
  size_t (*unpacked_bytes)(int64_t terms) = nullptr;
};

// The functions of a format; nothing for a format without a kernel, or without one for quantized activations. They are
// those of the target chosen at this moment (kernels/target.h); kUnsupported on a CPU below the least target.
std::optional<MatmulFormat> find_matmul_format(std::string_view name, bool int8);

// Quantizes one row of k terms (a multiple of 32) into row `row`: per block symmetric, scale = max |x| / 127, round to
// nearest even. A block below 1e-30 everywhere has scale 0; NaN or infinity makes the block's scale NaN.
void quantize_row(const float* x, const QuantizedRows& out, int64_t row);

}  // namespace atb
