// SPDX-License-Identifier: Apache-2.0
// Makes the function table of a weight format from its description (see FewRows and FewRowsInt8 for what it must have).
// Include inside a per-target translation unit.

// Per-target include guard.
#if defined(ATB_KERNELS_MATMUL_FORMAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATB_KERNELS_MATMUL_FORMAT_INL_H_
#undef ATB_KERNELS_MATMUL_FORMAT_INL_H_
#else
#define ATB_KERNELS_MATMUL_FORMAT_INL_H_
#endif

#include "kernels/few_rows-inl.h"
#include "kernels/many_rows-inl.h"
#include "kernels/matmul.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 16 f16 values of a panel from p, vector v of them.
HWY_INLINE HWY_ATTR TileVec load_f16(const std::byte* p, int v) {
  const hn::Rebind<hwy::float16_t, TileTag> d16;
  return hn::PromoteTo(
      TileTag(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p) + static_cast<size_t>(v) * kVectorLanes));
}

// Bytes of vector v of the 64-byte group `group` behind p: 4 terms of each lane.
HWY_INLINE HWY_ATTR Bytes load_group(const std::byte* p, int group, int v) {
  return hn::LoadU(BytesTag(), reinterpret_cast<const uint8_t*>(p) + static_cast<size_t>(group) * 4 * kTileLanes +
                                   static_cast<size_t>(v) * 4 * kVectorLanes);
}

// Terms as f32: [panel][terms][16].
template <class Format>
struct ExactUnpacker {
  template <int part, int... I>
  static HWY_INLINE HWY_ATTR void steps(const std::byte* p, const typename Format::Scales& scales, int v, float* out,
                                        std::integer_sequence<int, I...>) {
    constexpr int kFirst = part * Format::kStepTerms;
    out += kFirst * Format::kSteps * kPanelLanes;
    for (int step = 0; step < Format::kSteps; ++step, out += Format::kStepTerms * kPanelLanes) {
      (hn::StoreU(Format::template weight<kFirst + I>(p, scales, step, v), TileTag(), out + I * kPanelLanes), ...);
    }
  }
  static HWY_INLINE HWY_ATTR void chunk(const std::byte* p, float* out) {
    for (int v = 0; v < kPanelVectors; ++v, out += kVectorLanes) {
      const auto scales = Format::scales(p, v);
      using EachTerm = std::make_integer_sequence<int, Format::kStepTerms>;
      steps<0>(p, scales, v, out, EachTerm());
      if constexpr (Format::kParts == 2) steps<1>(p, scales, v, out, EachTerm());
    }
  }
  static HWY_ATTR void run(const std::byte* const* panels, int count, int64_t first, int64_t terms, std::byte* out) {
    for (int panel = 0; panel < count; ++panel) {
      const std::byte* p = panels[panel] + first / Format::kTerms * static_cast<int64_t>(Format::kBytes);
      float* to = reinterpret_cast<float*>(out) + panel * terms * kPanelLanes;
      int64_t k = 0;
      for (; k + Format::kTerms <= terms;
           k += Format::kTerms, p += Format::kBytes, to += Format::kTerms * kPanelLanes) {
        chunk(p, to);
      }
      if constexpr (Format::kTerms == 2) {
        if (k < terms) {
          for (int v = 0; v < kPanelVectors; ++v) {
            hn::StoreU(Format::template weight<0>(p, Format::scales(p, v), 0, v), TileTag(),
                       to + static_cast<size_t>(v) * kVectorLanes);
          }
        }
      }
    }
  }
};

inline size_t exact_unpacked_bytes(int64_t terms) {
  return static_cast<size_t>(terms * kTilePanels * kPanelLanes) * sizeof(float);
}

HWY_ATTR inline void many_rows_unpacked(const ManyRowsArgs& args) {
  ManyRowsArgs unpacked = args;
  unpacked.panel_stride = args.k * kPanelLanes * static_cast<int64_t>(sizeof(float));
  many_rows_f32(unpacked);
}

template <class Format>
HWY_ATTR void few_rows_exact(const FewRowsArgs& args) {
  few_rows_loop<FewRows, Format>(args);
}

template <class Format>
HWY_ATTR void few_rows_int8(const FewRowsArgs& args) {
  few_rows_loop<FewRowsInt8, Format>(args);
}

template <class Format>
HWY_ATTR void unpack_int8(const std::byte* const* panels, int count, int64_t first, int64_t terms, std::byte* out) {
  Int8Unpacker<Format>::run(panels, count, first, terms, out);
}

template <class Format>
HWY_ATTR void many_rows_bytes(const ManyRowsArgs& args) {
  many_rows_int8<Format>(args);
}

template <class Format>
size_t panel_bytes_of(int64_t k) {
  return static_cast<size_t>((k + Format::kTerms - 1) / Format::kTerms) * Format::kBytes;
}

template <class Format>
MatmulFormat exact_format() {
  MatmulFormat table;
  table.target = hwy::TargetName(HWY_TARGET);
  table.block_terms = Format::kTerms > 2 ? Format::kTerms : 1;
  table.tile_rows = kTileRows;
  table.tile_panels = kTilePanels;
  table.pass_terms = 256;  // 32 lanes x 256 terms: 32 KB, beside 12 rows of x in L1
  table.panel_bytes = panel_bytes_of<Format>;
  table.few_rows = few_rows_exact<Format>;
  if (Format::kIsF32) {
    table.many_rows = many_rows_f32;
  } else {
    table.many_rows = many_rows_unpacked;
    table.unpack = ExactUnpacker<Format>::run;
    table.unpacked_bytes = exact_unpacked_bytes;
  }
  return table;
}

template <class Format>
MatmulFormat int8_format() {
  MatmulFormat table;
  table.target = hwy::TargetName(HWY_TARGET);
  table.int8 = true;
  table.block_terms = Format::kTerms;
  table.tile_rows = kInt8TileRows;
  table.tile_panels = kInt8TilePanels;
  table.pass_terms = 768;  // of two panels: 30 KB
  table.panel_bytes = panel_bytes_of<Format>;
  table.few_rows = few_rows_int8<Format>;
  table.many_rows = many_rows_bytes<Format>;
  table.unpack = unpack_int8<Format>;
  table.unpacked_bytes = int8_unpacked_bytes;
  return table;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR

#endif  // ATB_KERNELS_MATMUL_FORMAT_INL_H_
