// SPDX-License-Identifier: Apache-2.0
// The steps of attention on one partition of keys: scores, softmax, weighted values, and the fold of partial results.
// See attention.h for the arithmetic. Everything here is defined per query row; blocking only decides what is shared.
#if defined(ATB_KERNELS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATB_KERNELS_ATTENTION_INL_H_
#undef ATB_KERNELS_ATTENTION_INL_H_
#else
#define ATB_KERNELS_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/attention.h"
#include "kernels/attention_tile-inl.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace attention {

using kernels::kPartitionPanels;
constexpr int kRowBlock = kernels::kMaxRowBlock;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// One partition with typed pointers.
template <class T>
struct Keys {
  const T* k[kPartitionPanels];
  const T* v[kPartitionPanels];
  const T* next_k[kPartitionPanels];  // what to fetch ahead: panels of the next partition
  int64_t v_stride;
};

// A range of keys, relative to the partition.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  bool empty() const { return begin >= end; }
};

// Scores of R rows against panels [first, last): s[r * kAttentionPartition + position].
template <int R, int NV, class T>
HWY_INLINE HWY_ATTR int64_t score_panels(const float* const (&q)[R], const Keys<T>& keys, int64_t head_dim,
                                         int64_t first, int64_t last, float* s) {
  constexpr int64_t kPanels = NV / kPanelVectors;
  for (; first + kPanels <= last; first += kPanels) {
    const T* b[NV];
    const T* ahead[NV];  // a panel of values has the size of a panel of keys
    for (int v = 0; v < NV; ++v) {
      b[v] = keys.k[first + v / kPanelVectors] + (v % kPanelVectors) * kLanes;
      ahead[v] = keys.v[first + v / kPanelVectors] + (v % kPanelVectors) * kLanes;
    }
    Tile<R, NV> tile;
    tile.zero();
    tile.add(q, b, ahead, kKeyPanel, head_dim);
    tile.write(s + first * kKeyPanel, kAttentionPartition);
  }
  return first;
}

template <int R, class T>
HWY_ATTR void scores(const float* const (&q)[R], const Keys<T>& keys, int64_t head_dim, int64_t first, int64_t last,
                     float* s) {
  constexpr int kWide = tile_vectors(R);
  first = score_panels<R, kWide>(q, keys, head_dim, first, last, s);
  if constexpr (kWide / 2 >= kPanelVectors) first = score_panels<R, kWide / 2>(q, keys, head_dim, first, last, s);
  if constexpr (kWide / 4 >= kPanelVectors) score_panels<R, kWide / 4>(q, keys, head_dim, first, last, s);
}

// acc[r][column ...] (+)= sum over keys j in `range` of p[r][j] * v[j][column ...].
template <int R, int NV, class T>
HWY_INLINE HWY_ATTR int64_t weigh_columns(const float* p, const Keys<T>& keys, Range range, bool from_zero,
                                          int64_t column, int64_t columns, float* acc) {
  for (; column + NV * kLanes <= columns; column += NV * kLanes) {
    Tile<R, NV> tile;
    if (from_zero) {
      tile.zero();
    } else {
      tile.read(acc + column, columns);
    }
    for (int64_t j = range.begin; j < range.end;) {
      const int64_t panel = j / kKeyPanel;
      const int64_t stop = std::min(range.end, (panel + 1) * kKeyPanel);
      const int64_t place = (j % kKeyPanel) * keys.v_stride + column;
      const T* b[NV];
      const T* ahead[NV];
      const float* a[R];
      for (int v = 0; v < NV; ++v) {
        b[v] = keys.v[panel] + place + v * kLanes;
        ahead[v] = keys.next_k[panel] + place + v * kLanes;
      }
      for (int r = 0; r < R; ++r) a[r] = p + r * kAttentionPartition + j;
      tile.add(a, b, ahead, keys.v_stride, stop - j);
      j = stop;
    }
    tile.write(acc + column, columns);
  }
  return column;
}

template <int R, class T>
HWY_ATTR void weigh(const float* p, const Keys<T>& keys, Range range, bool from_zero, int64_t columns, float* acc) {
  constexpr int kWide = tile_vectors(R);
  int64_t column = weigh_columns<R, kWide>(p, keys, range, from_zero, 0, columns, acc);
  if constexpr (kWide / 2 >= kPanelVectors) {
    column = weigh_columns<R, kWide / 2>(p, keys, range, from_zero, column, columns, acc);
  }
  if constexpr (kWide / 4 >= kPanelVectors) {
    weigh_columns<R, kWide / 4>(p, keys, range, from_zero, column, columns, acc);
  }
}

// e^x within about 1 ulp for x <= 0, the argument of softmax: 0 below -87 (so for -inf), NaN stays NaN. Half the steps
// of the general Exp. x = n ln2 + r with |r| <= ln2 / 2. Adding 1.5 * 2^23 + 127 rounds x / ln2 to the integer n and
// leaves n + 127, the exponent field of 2^n, in the low bits. e^r = 1 + r (1 + r p(r)), p a minimax fit (relative error
// 3e-9).
HWY_INLINE HWY_ATTR VF32 softmax_exp(VF32 x) {
  const F32 d;
  const VF32 bias = hn::Set(d, 0x1.8p23f + 127.0f);
  const VF32 biased = hn::MulAdd(x, hn::Set(d, 1.44269504f), bias);
  const VF32 n = hn::Sub(biased, bias);
  VF32 r = hn::NegMulAdd(n, hn::Set(d, 0x1.62ep-1f), x);  // high bits of ln2: the product is exact
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.0bfbe8p-15f), r);   // the rest of ln2
  VF32 p = hn::Set(d, 1.38145406e-3f);
  p = hn::MulAdd(p, r, hn::Set(d, 8.36874545e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1668389e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.66665211e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.9999994e-1f));
  const VF32 one = hn::Set(d, 1.0f);
  p = hn::MulAdd(hn::MulAdd(p, r, one), r, one);
  const hn::RebindToSigned<F32> di;
  const VF32 power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, biased)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::Mul(p, power));
}

// Lanes of vector v of a panel that starts at `position` and lie in `range`.
HWY_INLINE HWY_ATTR hn::Mask<F32> visible(Range range, int64_t position) {
  const F32 d;
  const VF32 lane = hn::Iota(d, static_cast<float>(position));
  return hn::And(hn::Ge(lane, hn::Set(d, static_cast<float>(range.begin))),
                 hn::Lt(lane, hn::Set(d, static_cast<float>(range.end))));
}

// Scaled and masked scores of the vector at `position`; -inf outside the range. Lanes outside may hold anything.
HWY_INLINE HWY_ATTR VF32 scaled_scores(const float* s, VF32 scale, const float* mask, Range range, int64_t position) {
  const F32 d;
  VF32 x = hn::Mul(hn::LoadU(d, s + position), scale);
  const bool inside = position >= range.begin && position + kLanes <= range.end;
  if (inside) return mask == nullptr ? x : hn::Add(x, hn::LoadU(d, mask + position));
  const auto lanes = visible(range, position);
  if (mask != nullptr) {
    // Only the visible part of the mask may be read.
    HWY_ALIGN float part[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      const bool seen = position + i >= range.begin && position + i < range.end;
      part[i] = seen ? mask[position + i] : 0.0f;
    }
    x = hn::Add(x, hn::Load(d, part));
  }
  return hn::IfThenElse(lanes, x, hn::Set(d, kMinusInfinity));
}

// Panels that hold `range` of a row of raw scores: scaled, then bounded softly by `softcap`.
HWY_NOINLINE HWY_ATTR inline void cap_row(float* s, float scale, float softcap, Range range) {
  const F32 d;
  const VF32 cap = hn::Set(d, softcap);
  const int64_t last = (range.end + kKeyPanel - 1) / kKeyPanel * kKeyPanel;
  for (int64_t at = range.begin / kKeyPanel * kKeyPanel; at < last; at += kLanes) {
    const VF32 x = hn::Mul(hn::LoadU(d, s + at), hn::Set(d, scale));
    hn::StoreU(hn::Mul(cap, Tanh(d, hn::Div(x, cap))), d, s + at);
  }
}

// Turns one row of raw scores into weights e^(s - max), zero outside `range`; gives max and sum. A sum of 0 means that
// no key is visible (NaN scores give a sum of NaN).
HWY_NOINLINE HWY_ATTR inline void softmax_row(float* s, float scale, const float* mask, Range range, float* max,
                                              float* sum) {
  const F32 d;
  const int64_t first = range.begin / kKeyPanel * kKeyPanel;
  const int64_t last = (range.end + kKeyPanel - 1) / kKeyPanel * kKeyPanel;
  const VF32 scales = hn::Set(d, scale);
  // One maximum and sum for each lane of a panel.
  VF32 top[kPanelVectors];
  VF32 total[kPanelVectors];
  for (int v = 0; v < kPanelVectors; ++v) {
    top[v] = hn::Set(d, kMinusInfinity);
    total[v] = hn::Zero(d);
  }
  for (int64_t position = first; position < last; position += kKeyPanel) {
    for (int v = 0; v < kPanelVectors; ++v) {
      const int64_t at = position + v * kLanes;
      const VF32 x = scaled_scores(s, scales, mask, range, at);
      hn::StoreU(x, d, s + at);
      top[v] = hn::Max(top[v], x);
    }
  }
  for (int v = 1; v < kPanelVectors; ++v) top[0] = hn::Max(top[0], top[v]);
  *max = hn::GetLane(hn::MaxOfLanes(d, top[0]));
  // Where all is -inf, any finite maximum gives weights of 0.
  const VF32 base = hn::Set(d, *max == kMinusInfinity ? 0.0f : *max);
  for (int64_t position = first; position < last; position += kKeyPanel) {
    for (int v = 0; v < kPanelVectors; ++v) {
      const int64_t at = position + v * kLanes;
      const VF32 p = softmax_exp(hn::Sub(hn::LoadU(d, s + at), base));
      hn::StoreU(p, d, s + at);
      total[v] = hn::Add(total[v], p);
    }
  }
  for (int v = 1; v < kPanelVectors; ++v) total[0] = hn::Add(total[0], total[v]);
  *sum = hn::GetLane(hn::SumOfLanes(d, total[0]));
}

// Factors of one fold step, for kLanes rows side by side; updates their maxima and sums. See fold_rows.
HWY_INLINE HWY_ATTR void fold_factors(float* max, float* sum, const float* m, const float* l, float* old_scale,
                                      float* new_scale) {
  const F32 d;
  const VF32 old_max = hn::Load(d, max);
  const VF32 new_max = hn::Load(d, m);
  const VF32 top = hn::Max(old_max, new_max);
  const VF32 a = softmax_exp(hn::Sub(old_max, top));
  const VF32 b = softmax_exp(hn::Sub(new_max, top));
  hn::Store(top, d, max);
  hn::Store(hn::MulAdd(hn::Load(d, sum), a, hn::Mul(hn::Load(d, l), b)), d, sum);
  hn::Store(a, d, old_scale);
  hn::Store(b, d, new_scale);
}

// Rows (max, sum, acc) <- (max, sum, acc) followed by the partial results (m, l, a): the one merge of decode and
// prefill. Partial results without a visible key (l = 0) change nothing; a may be acc where sum is 0.
HWY_NOINLINE HWY_ATTR inline void fold_rows(int64_t rows, float* max, float* sum, float* acc, const float* m,
                                            const float* l, const float* a, int64_t columns) {
  const F32 d;
  for (int64_t first = 0; first < rows; first += kLanes) {
    const int64_t count = std::min<int64_t>(kLanes, rows - first);
    HWY_ALIGN float part[6][kLanes] = {};
    std::copy_n(max + first, count, part[0]);
    std::copy_n(sum + first, count, part[1]);
    std::copy_n(m + first, count, part[2]);
    std::copy_n(l + first, count, part[3]);
    fold_factors(part[0], part[1], part[2], part[3], part[4], part[5]);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = first + i;
      const float* from = a + row * columns;
      float* to = acc + row * columns;
      if (l[row] == 0.0f) continue;
      if (sum[row] == 0.0f) {
        max[row] = m[row];
        sum[row] = l[row];
        if (to != from) std::copy_n(from, columns, to);
        continue;
      }
      max[row] = part[0][i];
      sum[row] = part[1][i];
      const VF32 old_scale = hn::Set(d, part[4][i]);
      const VF32 new_scale = hn::Set(d, part[5][i]);
      for (int64_t c = 0; c < columns; c += kLanes) {
        const VF32 added = hn::Mul(hn::LoadU(d, from + c), new_scale);
        hn::StoreU(hn::MulAdd(hn::LoadU(d, to + c), old_scale, added), d, to + c);
      }
    }
  }
}

// Weighted values of R rows whose visible ranges differ: what all see goes through the tile, the rest row by row, so
// that each row adds exactly its own keys in ascending order.
template <int R, class T>
HWY_ATTR void weigh_ranges(const float* p, const Keys<T>& keys, const Range (&ranges)[R], int64_t columns, float* acc) {
  Range common = ranges[0];
  bool equal_begins = true;
  for (int r = 1; r < R; ++r) {
    equal_begins = equal_begins && ranges[r].begin == common.begin;
    common.begin = std::max(common.begin, ranges[r].begin);
    common.end = std::min(common.end, ranges[r].end);
  }
  const auto one_row = [&](int r, Range range, bool from_zero) {
    weigh<1>(p + r * kAttentionPartition, keys, range, from_zero, columns, acc + r * columns);
  };
  if (common.empty()) {
    for (int r = 0; r < R; ++r) one_row(r, ranges[r], true);
    return;
  }
  if (!equal_begins) {
    for (int r = 0; r < R; ++r) one_row(r, {ranges[r].begin, common.begin}, true);
  }
  weigh<R>(p, keys, common, equal_begins, columns, acc);
  for (int r = 0; r < R; ++r) {
    if (ranges[r].end > common.end) one_row(r, {common.end, ranges[r].end}, false);
  }
}

// Rows [first, first + R) of a tile against one partition, relative to it.
template <int R>
struct Block {
  int first;
  Range ranges[R];
  Range all{kAttentionPartition, 0};  // from the first to the last visible key

  Block(const kernels::AttentionTile& tile, int first_row, int64_t partition) : first(first_row) {
    for (int r = 0; r < R; ++r) {
      const size_t row = static_cast<size_t>(first + r);
      ranges[r].begin = std::max<int64_t>(tile.begin[row] - partition, 0);
      ranges[r].end = std::max(ranges[r].begin, std::min(tile.end[row] - partition, kAttentionPartition));
      if (ranges[r].empty()) continue;
      all.begin = std::min(all.begin, ranges[r].begin);
      all.end = std::max(all.end, ranges[r].end);
    }
  }
};

// Scratch of attend_rows.
struct Work {
  float* s;        // [rows][kAttentionPartition]: scores, then weights
  float* max;      // [rows], of this partition
  float* sum;      // [rows]
  float* partial;  // [kRowBlock][padded head_dim]
};

// Weights of a block's rows, their maxima and sums.
template <int R, class T>
HWY_NOINLINE HWY_ATTR void score_block(const kernels::AttentionTile& tile, const Block<R>& block, int64_t partition,
                                       const Keys<T>& keys, const Work& work) {
  const float* q[R];
  for (int r = 0; r < R; ++r) q[r] = tile.q[static_cast<size_t>(block.first + r)];
  float* s = work.s + block.first * kAttentionPartition;
  const int64_t last = (block.all.end + kKeyPanel - 1) / kKeyPanel;
  scores<R>(q, keys, tile.head_dim, block.all.begin / kKeyPanel, last, s);
  for (int r = 0; r < R; ++r) {
    const int row = block.first + r;
    const float* mask = tile.mask[static_cast<size_t>(row)];
    float* row_scores = s + r * kAttentionPartition;
    const bool capped = tile.softcap > 0;
    if (capped) cap_row(row_scores, tile.scale, tile.softcap, block.ranges[r]);
    softmax_row(row_scores, capped ? 1.0f : tile.scale, mask == nullptr ? nullptr : mask + partition, block.ranges[r],
                work.max + row, work.sum + row);
  }
}

// Weighted values of a block's rows, folded into the running results.
template <int R, class T>
HWY_NOINLINE HWY_ATTR void weigh_block(const kernels::AttentionTile& tile, const Block<R>& block, const Keys<T>& keys,
                                       const Work& work) {
  const int64_t columns = kernels::padded_head_dim(tile.head_dim);
  float* sum = tile.sum + block.first;
  float* running = tile.acc + block.first * columns;
  // Where nothing was folded before, the partial result is the running one: no copy.
  const bool fresh = std::all_of(sum, sum + R, [](float value) { return value == 0.0f; });
  float* target = fresh ? running : work.partial;
  weigh_ranges<R>(work.s + block.first * kAttentionPartition, keys, block.ranges, columns, target);
  fold_rows(R, tile.max + block.first, sum, running, work.max + block.first, work.sum + block.first, target, columns);
}

// Calls f(Block<R>) for each block of rows with a visible key. Blocks are even: 8 rows are 4 + 4.
template <class F>
HWY_INLINE void for_each_block(const kernels::AttentionTile& tile, int64_t partition, F f) {
  const auto visit = [&](auto block) {
    if (!block.all.empty()) f(block);
  };
  const int blocks = (tile.rows + kRowBlock - 1) / kRowBlock;
  for (int i = 0; i < blocks; ++i) {
    const int first = tile.rows * i / blocks;
    switch (tile.rows * (i + 1) / blocks - first) {
      case 1:
        visit(Block<1>(tile, first, partition));
        break;
      case 2:
        visit(Block<2>(tile, first, partition));
        break;
      case 3:
        visit(Block<3>(tile, first, partition));
        break;
      case 4:
        visit(Block<4>(tile, first, partition));
        break;
      case 5:
        visit(Block<5>(tile, first, partition));
        break;
      default:
        visit(Block<6>(tile, first, partition));
        break;
    }
  }
}

// Folds a partition into all rows of the tile: first all scores, then all weighted values, so that the partition's
// keys, and after them its values, stay in the first-level cache.
template <class T>
HWY_ATTR void attend_rows(const kernels::AttentionTile& tile, int64_t partition, const Keys<T>& keys,
                          const Work& work) {
  for_each_block(tile, partition, [&](const auto& block) { score_block(tile, block, partition, keys, work); });
  for_each_block(tile, partition, [&](const auto& block) { weigh_block(tile, block, keys, work); });
}

}  // namespace attention
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
