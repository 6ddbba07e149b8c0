// SPDX-License-Identifier: Apache-2.0
// Attention over the paged cache. A sequence of few rows is split over partitions of keys (decode: partial results in
// shared scratch, merged in phase 1); one of many rows is cut into tiles of query rows that each walk all partitions.
// Both fold the same partial results in the same order, so the choice never shows in the result.
#include "ops/flash_attention_kv_kernel.h"

#include "kernels/attention.h"
#include "ops/attention_util.h"
#include "ops/kv_append_kernel.h"

namespace atb {
namespace {

using kernels::AttentionTile;
using kernels::kAttentionRows;
using kernels::KeyPartition;

// Splitting pays while a sequence has too few rows to fill tiles; its partial results are bounded by kSplitPartials
// times the query heads (one row is always split).
constexpr int64_t kSplitRows = 8;
constexpr int64_t kSplitPartials = 256;

struct PartitionRange {
  int64_t first = 0;
  int64_t last = 0;  // one beyond
  int64_t count() const { return last - first; }
};

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

class FlashAttentionKvKernel final : public Kernel {
 public:
  // `constant_mask`: elements of a mask that is a constant.
  FlashAttentionKvKernel(const KvLayout& layout, int64_t heads, const Node& node,
                         std::shared_ptr<const float> constant_mask)
      : layout_(layout),
        slot_(slot_in_block(layout, node)),
        scale_(static_cast<float>(node.attrs().real("scale"))),
        softcap_(static_cast<float>(node.attrs().real("softcap"))),
        window_(node.attrs().integer("window")),
        heads_(heads),
        group_(heads / layout.kv_heads),
        columns_(kernels::padded_head_dim(layout.head_dim)),
        constant_mask_(std::move(constant_mask)) {}

  int phases() const override { return 2; }

  int64_t units(const Call& call, int phase) const noexcept override {
    int64_t units = 0;
    for (const SequenceStep& sequence : call.sequences) units += units_of(sequence, phase);
    return units;
  }

  double cost(const Call& call, int phase) const noexcept override {
    double cost = 0;
    for (const SequenceStep& sequence : call.sequences) cost += cost_of(sequence, phase);
    return cost;
  }

  // Partial results of split sequences. `largest` holds as many sequences as a step can have, the longest among them.
  size_t scratch_bytes(const Call& largest) const override {
    const int64_t rows = largest.inputs[0].dim(0);
    int64_t context = largest.sequences.empty() ? rows : 1;
    for (const SequenceStep& sequence : largest.sequences) context = std::max(context, sequence.past + sequence.rows);
    const int64_t sequences = std::max<int64_t>(1, static_cast<int64_t>(largest.sequences.size()));
    const int64_t partitions = ceil_div(context, kAttentionPartition);
    const int64_t split = std::max(partitions, std::min(kSplitRows * partitions, kSplitPartials));
    const int64_t partials = std::min(rows * partitions, sequences * split) * heads_;
    return static_cast<size_t>(partials * (columns_ + 2)) * sizeof(float);
  }

  size_t worker_scratch_bytes(const Call& /*largest*/) const override {
    const size_t running = static_cast<size_t>(kAttentionRows * (columns_ + 2));
    return (running + kernels::attention_scratch(layout_.head_dim)) * sizeof(float);
  }

  void run(const Call& call, int phase, int64_t begin, int64_t end, std::byte* worker_scratch) const noexcept override {
    if (!mask_fits(call)) {
      if (call.fault != nullptr) call.fault->store(true, std::memory_order_relaxed);
      return;
    }
    float* running = reinterpret_cast<float*>(worker_scratch);
    int64_t first_partial = 0;
    const SequenceStep* at = call.sequences.data();
    const auto count = [&](const SequenceStep& sequence) { return units_of(sequence, phase); };
    for_each_unit(call.sequences, begin, end, count, [&](const SequenceStep& sequence, int64_t unit) {
      for (; at != &sequence; ++at) first_partial += partials_of(*at);
      if (phase == 1) {
        merge(call, sequence, unit, first_partial, running);
      } else if (is_split(sequence)) {
        run_partition(call, sequence, unit, first_partial, running);
      } else {
        run_tile(call, sequence, unit, running);
      }
    });
  }

  std::string variant(const Call& call) const override {
    bool split = false;
    bool tile = false;
    bool single = true;
    for (const SequenceStep& sequence : call.sequences) {
      if (sequence.rows <= 0) continue;
      (is_split(sequence) ? split : tile) = true;
      single = single && sequence.rows == 1;
    }
    const char* code = split && tile ? "mixed" : tile ? "tile" : single ? "rows1" : "rows_few";
    return std::string("flash_attention_kv/") + std::string(dtype_name(layout_.dtype)) + "/" + code + "/" +
           kernels::attention_target();
  }

 private:
  static bool masked(const Call& call) { return call.inputs.size() > 2 && call.inputs[2].rank != 0; }

  // Whether the mask [B, H, T, S] has an entry for every row and key of the step.
  static bool mask_fits(const Call& call) {
    if (!masked(call)) return true;
    const TensorView& mask = call.inputs[2];
    const auto has = [](int64_t extent, int64_t needed) { return extent == 1 || extent >= needed; };
    bool fits = has(mask.dim(0), static_cast<int64_t>(call.sequences.size()));
    for (const SequenceStep& sequence : call.sequences) {
      fits = fits && has(mask.dim(2), sequence.rows) && mask.dim(3) >= sequence.past + sequence.rows;
    }
    return fits;
  }

  const float* mask_of(const Call& call, const SequenceStep& sequence, int64_t head, int64_t row) const {
    if (!masked(call)) return nullptr;
    const TensorView& mask = call.inputs[2];
    const float* data = constant_mask_ != nullptr ? constant_mask_.get() : mask.as<const float>();
    return mask_row(mask, data, &sequence - call.sequences.data(), head, row);
  }

  // Partitions that hold a key which some row of the step sees.
  PartitionRange partitions_of(const SequenceStep& sequence) const {
    if (sequence.rows <= 0) return {};
    const int64_t first_key = window_ > 0 ? std::max<int64_t>(sequence.past + 1 - window_, 0) : 0;
    return {first_key / kAttentionPartition, ceil_div(sequence.past + sequence.rows, kAttentionPartition)};
  }

  bool is_split(const SequenceStep& sequence) const {
    return sequence.rows == 1 ||
           (sequence.rows <= kSplitRows && sequence.rows * partitions_of(sequence).count() <= kSplitPartials);
  }

  // Partial results in shared scratch; none where a single partition gives the result at once.
  int64_t partials_of(const SequenceStep& sequence) const {
    const int64_t partitions = partitions_of(sequence).count();
    return partitions > 1 && is_split(sequence) ? sequence.rows * heads_ * partitions : 0;
  }

  int64_t tiles_of(const SequenceStep& sequence) const { return ceil_div(sequence.rows * group_, kAttentionRows); }

  int64_t units_of(const SequenceStep& sequence, int phase) const {
    if (sequence.rows <= 0) return 0;
    if (phase == 1) return partials_of(sequence) > 0 ? sequence.rows * layout_.kv_heads : 0;
    return layout_.kv_heads * (is_split(sequence) ? partitions_of(sequence).count() : tiles_of(sequence));
  }

  double cost_of(const SequenceStep& sequence, int phase) const {
    const double row_floats = static_cast<double>(heads_ * columns_);
    if (phase == 1) return static_cast<double>(partials_of(sequence)) * static_cast<double>(columns_) * sizeof(float);
    const double keys = static_cast<double>(partitions_of(sequence).count() * kAttentionPartition);
    const double rows = static_cast<double>(sequence.rows);
    const double seen = is_split(sequence) || window_ > 0 ? keys : keys - rows / 2;
    const double bytes =
        2 * keys * static_cast<double>(layout_.kv_heads * layout_.head_dim) * static_cast<double>(layout_.element());
    return std::max(bytes, 4 * rows * row_floats * seen / 8);
  }

  // Query rows of one kv head, token by token, the heads of its group side by side: rows [first, first + rows).
  AttentionTile make_tile(const Call& call, const SequenceStep& sequence, int64_t kv_head, int64_t first,
                          int64_t rows) const {
    const TensorView& q = call.inputs[0];
    AttentionTile tile;
    tile.rows = static_cast<int>(rows);
    tile.head_dim = layout_.head_dim;
    tile.scale = scale_;
    tile.softcap = softcap_;
    int64_t token = first / group_;
    int64_t member = first % group_;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t head = kv_head * group_ + member;
      const size_t at = static_cast<size_t>(i);
      tile.q[at] = q.as<const float>() + (sequence.row_begin + token) * q.stride[0] + head * q.stride[1];
      tile.mask[at] = mask_of(call, sequence, head, token);
      tile.end[at] = sequence.past + token + 1;
      tile.begin[at] = window_ > 0 ? std::max<int64_t>(tile.end[at] - window_, 0) : 0;
      if (++member < group_) continue;
      member = 0;
      ++token;
    }
    return tile;
  }

  // Running results of a tile in a worker's scratch; gives the scratch behind them.
  float* use_running(AttentionTile& tile, float* running) const {
    tile.acc = running;
    tile.max = tile.acc + kAttentionRows * columns_;
    tile.sum = tile.max + kAttentionRows;
    return tile.sum + kAttentionRows;
  }

  // Partial results in the shared scratch from `index` on: accumulators of all partials, then maxima, then sums.
  struct Partials {
    float* acc;
    float* max;
    float* sum;
  };
  Partials partials_at(const Call& call, int64_t index) const {
    int64_t total = 0;
    for (const SequenceStep& sequence : call.sequences) total += partials_of(sequence);
    float* base = reinterpret_cast<float*>(call.scratch);
    float* max = base + total * columns_ + index;
    return {base + index * columns_, max, max + total};
  }

  KeyPartition make_partition(const SequenceStep& sequence, int64_t kv_head, int64_t partition) const {
    KeyPartition keys;
    keys.begin = partition * kAttentionPartition;
    keys.dtype = layout_.dtype;
    keys.v_stride = layout_.head_dim;
    const int64_t end = std::min(sequence.past + sequence.rows - keys.begin, kAttentionPartition);
    int64_t block = keys.begin / layout_.block_tokens;
    for (int64_t at = 0; at < end; ++block) {
      const std::byte* slot = sequence.slot(layout_, block, slot_);
      for (int64_t inside = 0; inside < layout_.block_tokens && at < end; inside += kKeyPanel, at += kKeyPanel) {
        const size_t panel = static_cast<size_t>(at / kKeyPanel);
        keys.k[panel] = slot + layout_.k_panel(kv_head, inside / kKeyPanel);
        keys.v[panel] = slot + layout_.v_row(kv_head, inside);
      }
    }
    return keys;
  }

  void finish(const Call& call, const SequenceStep& sequence, int64_t kv_head, int64_t first,
              const AttentionTile& tile) const {
    const TensorView& out = call.outputs[0];
    std::array<float*, kAttentionRows> rows{};
    for (int64_t i = 0; i < tile.rows; ++i) {
      const int64_t token = (first + i) / group_;
      const int64_t head = kv_head * group_ + (first + i) % group_;
      rows[static_cast<size_t>(i)] =
          out.as<float>() + (sequence.row_begin + token) * out.stride[0] + head * out.stride[1];
    }
    kernels::attention_finish(tile, rows.data());
  }

  // Index of the first partial of (kv head, partition) of a sequence whose partials begin at `first_partial`.
  int64_t partial_index(const SequenceStep& sequence, int64_t first_partial, int64_t kv_head, int64_t partition) const {
    const int64_t partitions = partitions_of(sequence).count();
    return first_partial + (kv_head * partitions + partition) * sequence.rows * group_;
  }

  // Decode: all rows of the sequence against one partition of one kv head.
  void run_partition(const Call& call, const SequenceStep& sequence, int64_t unit, int64_t first_partial,
                     float* running) const {
    const PartitionRange partitions = partitions_of(sequence);
    const int64_t kv_head = unit / partitions.count();
    const int64_t partition = unit % partitions.count();
    KeyPartition keys = make_partition(sequence, kv_head, partitions.first + partition);
    if (partition + 1 < partitions.count()) {
      keys.next_k = make_partition(sequence, kv_head, partitions.first + partition + 1).k;
    } else if (kv_head + 1 < layout_.kv_heads) {
      keys.next_k = make_partition(sequence, kv_head + 1, partitions.first).k;
    }
    const int64_t rows = sequence.rows * group_;
    for (int64_t first = 0; first < rows; first += kAttentionRows) {
      AttentionTile tile = make_tile(call, sequence, kv_head, first, std::min<int64_t>(kAttentionRows, rows - first));
      float* scratch = use_running(tile, running);
      const bool direct = partitions.count() == 1;
      if (!direct) {
        const Partials partials = partials_at(call, partial_index(sequence, first_partial, kv_head, partition) + first);
        tile.acc = partials.acc;
        tile.max = partials.max;
        tile.sum = partials.sum;
      }
      kernels::attention_start(tile);
      kernels::attend(tile, keys, scratch);
      if (direct) finish(call, sequence, kv_head, first, tile);
    }
  }

  // Decode, phase 1: folds the partial results of one token and one kv head.
  void merge(const Call& call, const SequenceStep& sequence, int64_t unit, int64_t first_partial,
             float* running) const {
    const int64_t kv_head = unit % layout_.kv_heads;
    const int64_t first_row = unit / layout_.kv_heads * group_;
    const int64_t partitions = partitions_of(sequence).count();
    for (int64_t g = 0; g < group_; g += kAttentionRows) {
      const int64_t first = first_row + g;
      AttentionTile tile = make_tile(call, sequence, kv_head, first, std::min<int64_t>(kAttentionRows, group_ - g));
      use_running(tile, running);
      kernels::attention_start(tile);
      for (int64_t partition = 0; partition < partitions; ++partition) {
        const Partials partials = partials_at(call, partial_index(sequence, first_partial, kv_head, partition) + first);
        kernels::attention_fold(tile, partials.max, partials.sum, partials.acc);
      }
      finish(call, sequence, kv_head, first, tile);
    }
  }

  // Prefill: a tile of query rows against all partitions that it sees.
  void run_tile(const Call& call, const SequenceStep& sequence, int64_t unit, float* running) const {
    const int64_t tiles = tiles_of(sequence);
    const int64_t kv_head = unit / tiles;
    // Later tiles see more keys: alternating from both ends keeps every range of units about equally heavy.
    const int64_t index = unit % tiles;
    const int64_t first = (index % 2 == 0 ? tiles - 1 - index / 2 : index / 2) * kAttentionRows;
    const int64_t rows = std::min<int64_t>(kAttentionRows, sequence.rows * group_ - first);
    AttentionTile tile = make_tile(call, sequence, kv_head, first, rows);
    float* scratch = use_running(tile, running);
    kernels::attention_start(tile);
    const int64_t last_key = tile.end[static_cast<size_t>(rows - 1)];
    for (int64_t p = tile.begin[0] / kAttentionPartition; p * kAttentionPartition < last_key; ++p) {
      kernels::attend(tile, make_partition(sequence, kv_head, p), scratch);
    }
    finish(call, sequence, kv_head, first, tile);
  }

  KvLayout layout_;
  int64_t slot_;
  float scale_;
  float softcap_;
  int64_t window_;
  int64_t heads_;
  int64_t group_;
  int64_t columns_;  // row stride of accumulators
  std::shared_ptr<const float> constant_mask_;
};

}  // namespace

std::unique_ptr<Kernel> make_flash_attention_kv_kernel(const KernelRequest& request) {
  const Value* q = request.node.input(0);
  const Value* mask = request.node.inputs().size() > 2 ? request.node.input(2) : nullptr;
  if (q->type().dtype != DType::kF32 || (mask != nullptr && mask->type().dtype != DType::kF32)) return nullptr;
  std::shared_ptr<const float> constant_mask;
  if (mask != nullptr && mask->is_constant()) constant_mask = request.store.f32(mask->constant());
  const KvLayout& layout = checked_kv_layout(request, request.node.attrs().integer("kv_heads"), q->dim(2));
  return std::make_unique<FlashAttentionKvKernel>(layout, q->dim(1).constant(), request.node, std::move(constant_mask));
}

}  // namespace atb
