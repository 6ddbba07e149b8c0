// SPDX-License-Identifier: Apache-2.0
// One unit a tile of query rows and a range of keys. Where the batch shares its keys, a tile holds rows of several
// queries of the batch, so that each key is read once for all of them.
#include "ops/block_attention_kernel.h"

#include <limits>
#include <string>

#include "kernels/attention.h"
#include "ops/attention_util.h"
#include "ops/plain_operands_util.h"

namespace atb {
namespace {

using In = BlockAttentionInput;
using kernels::AttentionTile;
using kernels::kAttentionRows;
using kernels::KeyPartition;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Extents of one call.
struct Sizes {
  int64_t batch, tokens, heads, head_dim, kv_batch, kv_heads, keys, partials;
  explicit Sizes(const Call& call)
      : batch(call.inputs[In::kQ].dim(0)),
        tokens(call.inputs[In::kQ].dim(1)),
        heads(call.inputs[In::kQ].dim(2)),
        head_dim(call.inputs[In::kQ].dim(3)),
        kv_batch(call.inputs[In::kV].dim(0)),
        kv_heads(call.inputs[In::kV].dim(1)),
        keys(call.inputs[In::kV].dim(2)),
        partials(call.outputs[1].dim(0)) {}
  int64_t group() const { return kv_heads == 0 ? 0 : heads / kv_heads; }
  // Query rows that read the same keys.
  int64_t rows() const { return (kv_batch == 1 ? batch : 1) * tokens * group(); }
  int64_t tiles() const { return ceil_div(rows(), kAttentionRows); }
};

// One row of a tile: which query.
struct Row {
  int64_t batch, token, head;
};

class BlockAttentionKernel final : public Kernel {
 public:
  explicit BlockAttentionKernel(const Node& node)
      : scale_(static_cast<float>(node.attrs().real("scale"))),
        softcap_(static_cast<float>(node.attrs().real("softcap"))),
        causal_(node.attrs().flag("causal")),
        window_(node.attrs().integer("window")),
        split_(node.attrs().integer("split")),
        masked_(node.input(In::kMask) != nullptr),
        placed_(node.input(In::kFirstQuery) != nullptr),
        running_(node.input(In::kSum) != nullptr) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override {
    const Sizes n(call);
    return n.partials * n.kv_batch * n.kv_heads * n.tiles();
  }

  double cost(const Call& call, int /*phase*/) const noexcept override {
    const Sizes n(call);
    const double pairs = static_cast<double>(n.batch * n.heads) * static_cast<double>(n.tokens * n.keys);
    const double read = static_cast<double>(n.kv_batch * n.kv_heads) * static_cast<double>(n.keys * n.head_dim) * 8;
    return std::max(read, pairs * static_cast<double>(n.head_dim) / 2);
  }

  size_t worker_scratch_bytes(const Call& largest) const override {
    const int64_t head_dim = largest.inputs[In::kQ].dim(3);
    const size_t results = static_cast<size_t>(kAttentionRows * (kernels::padded_head_dim(head_dim) + 2));
    const size_t panels = static_cast<size_t>(kAttentionPartition * head_dim);
    return (panels + results + kernels::attention_scratch(head_dim)) * sizeof(float);
  }

  // Tiles that read the same keys follow each other.
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* worker_scratch) const noexcept override {
    const Sizes n(call);
    for (int64_t unit = begin; unit < end; ++unit) run_tile(call, n, unit, reinterpret_cast<float*>(worker_scratch));
  }

  std::string variant(const Call& call) const override {
    const Sizes n(call);
    const char* keys = n.kv_batch == 1 && n.batch > 1 ? "/shared/" : "/own/";
    return std::string("block_attention_f32") + keys + kernels::attention_target();
  }

 private:
  static Row row_at(const Sizes& n, int64_t kv_batch, int64_t kv_head, int64_t index) {
    const int64_t token = index / n.group();
    const int64_t batch = n.kv_batch == 1 ? token / n.tokens : kv_batch;
    return {batch, token % n.tokens, kv_head * n.group() + index % n.group()};
  }

  // Key position of a batch's first query.
  int64_t first_query(const Call& call, const Sizes& n, int64_t batch) const {
    if (!placed_) return n.keys - n.tokens;
    const TensorView& first = call.inputs[In::kFirstQuery];
    return first.as<const int32_t>()[first.dim(0) == 1 ? 0 : batch * first.stride[0]];
  }

  void run_tile(const Call& call, const Sizes& n, int64_t unit, float* panels) const {
    const int64_t first = unit % n.tiles() * kAttentionRows;
    const int64_t kv_head = unit / n.tiles() % n.kv_heads;
    const int64_t kv_batch = unit / n.tiles() / n.kv_heads % n.kv_batch;
    const int64_t part = unit / n.tiles() / n.kv_heads / n.kv_batch;
    const int64_t range_begin = part * split_;
    const int64_t range_end = split_ == 0 ? n.keys : std::min(n.keys, range_begin + split_);
    AttentionTile tile;
    std::array<Row, kAttentionRows> rows{};
    tile.rows = static_cast<int>(std::min<int64_t>(kAttentionRows, n.rows() - first));
    tile.head_dim = n.head_dim;
    tile.scale = scale_;
    tile.softcap = softcap_;
    int64_t first_key = range_end;
    int64_t last_key = range_begin;
    for (int64_t i = 0; i < tile.rows; ++i) {
      const size_t at = static_cast<size_t>(i);
      const Row row = rows[at] = row_at(n, kv_batch, kv_head, first + i);
      const TensorView& q = call.inputs[In::kQ];
      tile.q[at] = q.as<const float>() + row.batch * q.stride[0] + row.token * q.stride[1] + row.head * q.stride[2];
      if (masked_) {
        const TensorView& mask = call.inputs[In::kMask];
        tile.mask[at] = mask_row(mask, mask.as<const float>(), row.batch, row.head, row.token);
      }
      const int64_t position = first_query(call, n, row.batch) + row.token;
      tile.end[at] = causal_ ? std::clamp<int64_t>(position + 1, range_begin, range_end) : range_end;
      tile.begin[at] = window_ > 0 ? std::clamp<int64_t>(position + 1 - window_, range_begin, range_end) : range_begin;
      first_key = std::min(first_key, tile.begin[at]);
      last_key = std::max(last_key, tile.end[at]);
    }
    tile.acc = panels + kAttentionPartition * n.head_dim;
    tile.max = tile.acc + kAttentionRows * kernels::padded_head_dim(n.head_dim);
    tile.sum = tile.max + kAttentionRows;
    kernels::attention_start(tile);
    if (running_) read_running(call, rows, tile);
    for (int64_t p = first_key / kAttentionPartition; p * kAttentionPartition < last_key; ++p) {
      kernels::attend(tile, make_partition(call, n, kv_batch, kv_head, p, panels), tile.sum + kAttentionRows);
    }
    write(call, part, rows, tile);
  }

  // Offset of a query's row in a tensor whose axes are [B, T, H, ...] from `axis` on.
  static int64_t offset(const TensorView& view, size_t axis, const Row& row) {
    return row.batch * view.stride[axis] + row.token * view.stride[axis + 1] + row.head * view.stride[axis + 2];
  }

  static void read_running(const Call& call, const std::array<Row, kAttentionRows>& rows, const AttentionTile& tile) {
    const TensorView &output = call.inputs[In::kOutput], &max = call.inputs[In::kMax], &sum = call.inputs[In::kSum];
    const int64_t columns = kernels::padded_head_dim(tile.head_dim);
    for (int64_t i = 0; i < tile.rows; ++i) {
      const Row& row = rows[static_cast<size_t>(i)];
      float* acc = tile.acc + i * columns;
      std::copy_n(output.as<const float>() + offset(output, 0, row), tile.head_dim, acc);
      std::fill(acc + tile.head_dim, acc + columns, 0.0f);
      tile.max[i] = max.as<const float>()[offset(max, 0, row)];
      tile.sum[i] = sum.as<const float>()[offset(sum, 0, row)];
      if (tile.sum[i] == 0.0f) tile.max[i] = -std::numeric_limits<float>::infinity();
    }
  }

  static void write(const Call& call, int64_t part, const std::array<Row, kAttentionRows>& rows,
                    const AttentionTile& tile) {
    const TensorView &output = call.outputs[0], &max = call.outputs[1], &sum = call.outputs[2];
    for (int64_t i = 0; i < tile.rows; ++i) {
      const Row& row = rows[static_cast<size_t>(i)];
      float* out = output.as<float>() + part * output.stride[0] + offset(output, 1, row);
      if (tile.sum[i] == 0.0f) {
        std::fill_n(out, tile.head_dim, 0.0f);
      } else {
        std::copy_n(tile.acc + i * kernels::padded_head_dim(tile.head_dim), tile.head_dim, out);
      }
      max.as<float>()[part * max.stride[0] + offset(max, 1, row)] = tile.max[i];
      sum.as<float>()[part * sum.stride[0] + offset(sum, 1, row)] = tile.sum[i];
    }
  }

  // Panels are read where they are; those whose [head_dim][16] is not in one piece are copied to `copies` first.
  static KeyPartition make_partition(const Call& call, const Sizes& n, int64_t kv_batch, int64_t kv_head,
                                     int64_t partition, float* copies) {
    const TensorView& k = call.inputs[In::kK];
    const TensorView& v = call.inputs[In::kV];
    KeyPartition keys;
    keys.begin = partition * kAttentionPartition;
    keys.v_stride = v.stride[2];
    const float* panels = k.as<const float>() + kv_batch * k.stride[0] + kv_head * k.stride[1];
    const float* values = v.as<const float>() + kv_batch * v.stride[0] + kv_head * v.stride[1];
    for (size_t i = 0; i < kernels::kPartitionPanels; ++i) {
      const int64_t position = keys.begin + static_cast<int64_t>(i) * kKeyPanel;
      if (position >= n.keys) break;
      const float* panel = panels + position / kKeyPanel * k.stride[2];
      if (k.stride[3] != kKeyPanel) {
        float* copy = copies + static_cast<int64_t>(i) * kKeyPanel * n.head_dim;
        for (int64_t d = 0; d < n.head_dim; ++d) std::copy_n(panel + d * k.stride[3], kKeyPanel, copy + d * kKeyPanel);
        panel = copy;
      }
      keys.k[i] = reinterpret_cast<const std::byte*>(panel);
      keys.v[i] = reinterpret_cast<const std::byte*>(values + position * v.stride[2]);
    }
    return keys;
  }

  float scale_;
  float softcap_;
  bool causal_;
  int64_t window_;
  int64_t split_;
  bool masked_;
  bool placed_;   // first_query is given
  bool running_;  // running results are given
};

bool takes(const Node& node) {
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    const DType dtype = i == In::kFirstQuery ? DType::kI32 : DType::kF32;
    if (node.input(i) != nullptr && node.input(i)->type().dtype != dtype) return false;
  }
  return plain_operands(node);
}

}  // namespace

std::unique_ptr<Kernel> make_block_attention_kernel(const KernelRequest& request) {
  if (!takes(request.node)) return nullptr;
  return std::make_unique<BlockAttentionKernel>(request.node);
}

}  // namespace atb
