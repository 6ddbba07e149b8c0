// SPDX-License-Identifier: Apache-2.0
// Attention steps compiled for each instruction set, chosen at run time.
#include "kernels/attention.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace attention {

using kernels::AttentionTile;
using kernels::kAttentionRows;
using kernels::KeyPartition;
using kernels::padded_head_dim;

// Above this many rows, widening a partition to f32 once is cheaper than on each load.
constexpr int kWidenRows = 2 * kRowBlock;

HWY_ATTR void widen(const float* from, int64_t count, float* to) { std::copy_n(from, count, to); }
HWY_ATTR void widen(const hwy::bfloat16_t* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(load(from + i), F32(), to + i);
  for (; i < count; ++i) {
    uint16_t bits;
    hwy::CopySameSize(from + i, &bits);
    to[i] = bf16_to_f32(bits);
  }
}

template <class T>
Keys<T> typed(const KeyPartition& part) {
  Keys<T> keys;
  for (size_t i = 0; i < kPartitionPanels; ++i) {
    keys.k[i] = reinterpret_cast<const T*>(part.k[i]);
    keys.v[i] = reinterpret_cast<const T*>(part.v[i]);
    keys.next_k[i] = reinterpret_cast<const T*>(part.next_k[i] != nullptr ? part.next_k[i] : part.v[i]);
  }
  keys.v_stride = part.v_stride;
  return keys;
}

template <class T>
void widen_keys(const Keys<T>& from, int64_t head_dim, int64_t panels, float* to, Keys<float>& keys) {
  for (int64_t i = 0; i < panels; ++i, to += head_dim * kKeyPanel) {
    widen(from.k[i], head_dim * kKeyPanel, to);
    keys.k[i] = to;
  }
}

// Rows of values padded with zeros to whole vectors.
template <class T>
void widen_values(const Keys<T>& from, int64_t head_dim, int64_t rows, float* to, Keys<float>& keys) {
  keys.v_stride = padded_head_dim(head_dim);
  for (int64_t i = 0; i < rows; ++i, to += keys.v_stride) {
    if (i % kKeyPanel == 0) keys.v[i / kKeyPanel] = keys.next_k[i / kKeyPanel] = to;
    widen(from.v[i / kKeyPanel] + (i % kKeyPanel) * from.v_stride, head_dim, to);
    std::fill(to + head_dim, to + keys.v_stride, 0.0f);
  }
}

template <class T>
void attend_typed(const AttentionTile& tile, const KeyPartition& part, float* scratch) {
  const int64_t head_dim = tile.head_dim;
  const auto last = std::max_element(tile.end.begin(), tile.end.begin() + tile.rows);
  const int64_t visible_keys = std::min(*last - part.begin, kAttentionPartition);
  if (visible_keys <= 0) return;
  Keys<T> keys = typed<T>(part);
  Work work;
  work.s = scratch;
  work.max = work.s + kAttentionRows * kAttentionPartition;
  work.sum = work.max + kAttentionRows;
  work.partial = work.sum + kAttentionRows;
  float* wide_keys = work.partial + kRowBlock * padded_head_dim(head_dim);
  float* wide_values = wide_keys + kAttentionPartition * head_dim;
  const bool narrow = sizeof(T) < sizeof(float);
  const bool ragged = head_dim != padded_head_dim(head_dim);
  if (ragged || (narrow && tile.rows > kWidenRows)) {
    Keys<float> wide;
    widen_keys(keys, head_dim, (visible_keys + kKeyPanel - 1) / kKeyPanel, wide_keys, wide);
    widen_values(keys, head_dim, visible_keys, wide_values, wide);
    attend_rows(tile, part.begin, wide, work);
  } else {
    attend_rows(tile, part.begin, keys, work);
  }
}

}  // namespace attention

using namespace attention;  // NOLINT(google-build-using-namespace)

void attend_impl(const AttentionTile& tile, const KeyPartition& part, float* scratch) {
  if (part.dtype == DType::kBF16) {
    attend_typed<hwy::bfloat16_t>(tile, part, scratch);
  } else {
    attend_typed<float>(tile, part, scratch);
  }
}

void fold_impl(const AttentionTile& tile, const float* max, const float* sum, const float* acc) {
  fold_rows(tile.rows, tile.max, tile.sum, tile.acc, max, sum, acc, padded_head_dim(tile.head_dim));
}

HWY_ATTR void finish_impl(const AttentionTile& tile, float* const* out) {
  const F32 d;
  const int64_t columns = padded_head_dim(tile.head_dim);
  for (int64_t r = 0; r < tile.rows; ++r) {
    if (tile.sum[r] == 0.0f) {
      std::fill_n(out[r], tile.head_dim, 0.0f);
      continue;
    }
    const float* acc = tile.acc + r * columns;
    const VF32 sum = hn::Set(d, tile.sum[r]);
    int64_t c = 0;
    for (; c + kLanes <= tile.head_dim; c += kLanes) {
      hn::StoreU(hn::Div(hn::LoadU(d, acc + c), sum), d, out[r] + c);
    }
    for (; c < tile.head_dim; ++c) out[r][c] = acc[c] / tile.sum[r];
  }
}

const char* target_impl() { return hwy::TargetName(HWY_TARGET); }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atb {
HWY_EXPORT(attend_impl);
HWY_EXPORT(fold_impl);
HWY_EXPORT(finish_impl);
HWY_EXPORT(target_impl);

namespace kernels {

size_t attention_scratch(int64_t head_dim) {
  // Scores, maxima and sums of all rows, partial results of a row block, a partition's widened keys and values.
  const int64_t padded = padded_head_dim(head_dim);
  const int64_t rows = kAttentionRows * (kAttentionPartition + 2) + kMaxRowBlock * padded;
  return static_cast<size_t>(rows + kAttentionPartition * (head_dim + padded));
}

void attention_start(const AttentionTile& tile) {
  std::fill_n(tile.max, tile.rows, -std::numeric_limits<float>::infinity());
  std::fill_n(tile.sum, tile.rows, 0.0f);
}

void attend(const AttentionTile& tile, const KeyPartition& keys, float* scratch) {
  HWY_DYNAMIC_DISPATCH(attend_impl)(tile, keys, scratch);
}

void attention_fold(const AttentionTile& tile, const float* max, const float* sum, const float* acc) {
  HWY_DYNAMIC_DISPATCH(fold_impl)(tile, max, sum, acc);
}

void attention_finish(const AttentionTile& tile, float* const* out) { HWY_DYNAMIC_DISPATCH(finish_impl)(tile, out); }

const char* attention_target() { return HWY_DYNAMIC_DISPATCH(target_impl)(); }

}  // namespace kernels
}  // namespace atb
#endif  // HWY_ONCE
