// SPDX-License-Identifier: Apache-2.0
// Attention without a cache, by the steps of the cached one. Phase 0 lays keys out in panels, phase 1 walks tiles of
// query rows over the partitions of keys.
#include "ops/flash_attention_kernel.h"

#include "kernels/attention.h"
#include "ops/attention_util.h"

namespace atb {
namespace {

using kernels::AttentionTile;
using kernels::kAttentionRows;
using kernels::KeyPartition;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Extents of one call.
struct Sizes {
  int64_t batch, tokens, heads, head_dim, keys, kv_heads;
  explicit Sizes(const Call& call)
      : batch(call.inputs[0].dim(0)),
        tokens(call.inputs[0].dim(1)),
        heads(call.inputs[0].dim(2)),
        head_dim(call.inputs[0].dim(3)),
        keys(call.inputs[1].dim(1)),
        kv_heads(call.inputs[1].dim(2)) {}
  int64_t group() const { return heads / kv_heads; }
  int64_t panels() const { return ceil_div(keys, kKeyPanel); }
  int64_t panel_floats() const { return head_dim * kKeyPanel; }
  int64_t tiles() const { return ceil_div(tokens * group(), kAttentionRows); }
};

class FlashAttentionKernel final : public Kernel {
 public:
  FlashAttentionKernel(const Attrs& attrs, bool masked, std::shared_ptr<const float> constant_mask)
      : scale_(static_cast<float>(attrs.real("scale"))),
        softcap_(static_cast<float>(attrs.real("softcap"))),
        causal_(attrs.flag("causal")),
        window_(attrs.integer("window")),
        masked_(masked),
        constant_mask_(std::move(constant_mask)) {}

  int phases() const override { return 2; }

  int64_t units(const Call& call, int phase) const noexcept override {
    const Sizes n(call);
    return n.batch * n.kv_heads * (phase == 0 ? n.panels() : n.tiles());
  }

  double cost(const Call& call, int phase) const noexcept override {
    const Sizes n(call);
    if (phase == 0) return static_cast<double>(call.inputs[1].size()) * 2 * sizeof(float);
    const double pairs = static_cast<double>(n.batch * n.heads) * static_cast<double>(n.tokens * n.keys);
    return pairs * static_cast<double>(n.head_dim) * 4 / 8 / (causal_ ? 2 : 1);
  }

  size_t scratch_bytes(const Call& largest) const override {
    const Sizes n(largest);
    return static_cast<size_t>(n.batch * n.kv_heads * n.panels() * n.panel_floats()) * sizeof(float);
  }

  size_t worker_scratch_bytes(const Call& largest) const override {
    const int64_t head_dim = largest.inputs[0].dim(3);
    const size_t running = static_cast<size_t>(kAttentionRows * (kernels::padded_head_dim(head_dim) + 2));
    return (running + kernels::attention_scratch(head_dim)) * sizeof(float);
  }

  void run(const Call& call, int phase, int64_t begin, int64_t end, std::byte* worker_scratch) const noexcept override {
    const Sizes n(call);
    for (int64_t unit = begin; unit < end; ++unit) {
      if (phase == 0) {
        pack_panel(call, n, unit);
      } else {
        run_tile(call, n, unit, reinterpret_cast<float*>(worker_scratch));
      }
    }
  }

  std::string variant(const Call& /*call*/) const override {
    return std::string("flash_attention/f32/tile/") + kernels::attention_target();
  }

 private:
  static float* panels_of(const Call& call, const Sizes& n, int64_t batch, int64_t kv_head) {
    return reinterpret_cast<float*>(call.scratch) + (batch * n.kv_heads + kv_head) * n.panels() * n.panel_floats();
  }

  // Keys 16 side by side; lanes beyond the last key are zero.
  static void pack_panel(const Call& call, const Sizes& n, int64_t unit) {
    const TensorView& k = call.inputs[1];
    const int64_t panel = unit % n.panels();
    const int64_t kv_head = unit / n.panels() % n.kv_heads;
    const int64_t batch = unit / n.panels() / n.kv_heads;
    const int64_t first = panel * kKeyPanel;
    const float* from = k.as<const float>() + batch * k.stride[0] + first * k.stride[1] + kv_head * k.stride[2];
    pack_key_panel(from, k.stride[1], std::min(n.keys - first, kKeyPanel), n.head_dim,
                   panels_of(call, n, batch, kv_head) + panel * n.panel_floats());
  }

  const float* mask_of(const Call& call, int64_t batch, int64_t head, int64_t token) const {
    if (!masked_) return nullptr;
    const TensorView& mask = call.inputs[3];
    const float* data = constant_mask_ != nullptr ? constant_mask_.get() : mask.as<const float>();
    return mask_row(mask, data, batch, head, token);
  }

  void run_tile(const Call& call, const Sizes& n, int64_t unit, float* running) const {
    const int64_t kv_head = unit / n.tiles() % n.kv_heads;
    const int64_t batch = unit / n.tiles() / n.kv_heads;
    // Later tiles see more keys: alternating from both ends keeps every range of units about equally heavy.
    const int64_t index = unit % n.tiles();
    const int64_t first = (index % 2 == 0 ? n.tiles() - 1 - index / 2 : index / 2) * kAttentionRows;
    const TensorView& q = call.inputs[0];
    const TensorView& out = call.outputs[0];
    AttentionTile tile;
    std::array<float*, kAttentionRows> results{};
    tile.rows = static_cast<int>(std::min<int64_t>(kAttentionRows, n.tokens * n.group() - first));
    tile.head_dim = n.head_dim;
    tile.scale = scale_;
    tile.softcap = softcap_;
    for (int64_t i = 0; i < tile.rows; ++i) {
      const size_t at = static_cast<size_t>(i);
      const int64_t token = (first + i) / n.group();
      const int64_t head = kv_head * n.group() + (first + i) % n.group();
      tile.q[at] = q.as<const float>() + batch * q.stride[0] + token * q.stride[1] + head * q.stride[2];
      results[at] = out.as<float>() + batch * out.stride[0] + token * out.stride[1] + head * out.stride[2];
      tile.mask[at] = mask_of(call, batch, head, token);
      // The last query is level with the last key.
      const int64_t position = token + n.keys - n.tokens;
      tile.end[at] = causal_ ? std::clamp<int64_t>(position + 1, 0, n.keys) : n.keys;
      tile.begin[at] = window_ > 0 ? std::clamp<int64_t>(position + 1 - window_, 0, n.keys) : 0;
    }
    tile.acc = running;
    tile.max = tile.acc + kAttentionRows * kernels::padded_head_dim(n.head_dim);
    tile.sum = tile.max + kAttentionRows;
    kernels::attention_start(tile);
    const int64_t last_key = tile.end[static_cast<size_t>(tile.rows - 1)];
    for (int64_t p = tile.begin[0] / kAttentionPartition; p * kAttentionPartition < last_key; ++p) {
      kernels::attend(tile, make_partition(call, n, batch, kv_head, p), tile.sum + kAttentionRows);
    }
    kernels::attention_finish(tile, results.data());
  }

  static KeyPartition make_partition(const Call& call, const Sizes& n, int64_t batch, int64_t kv_head,
                                     int64_t partition) {
    const TensorView& v = call.inputs[2];
    KeyPartition keys;
    keys.begin = partition * kAttentionPartition;
    keys.v_stride = v.stride[1];
    const float* panels = panels_of(call, n, batch, kv_head);
    const float* values = v.as<const float>() + batch * v.stride[0] + kv_head * v.stride[2];
    for (size_t i = 0; i < kernels::kPartitionPanels; ++i) {
      const int64_t position = keys.begin + static_cast<int64_t>(i) * kKeyPanel;
      if (position >= n.keys) break;
      keys.k[i] = reinterpret_cast<const std::byte*>(panels + position / kKeyPanel * n.panel_floats());
      keys.v[i] = reinterpret_cast<const std::byte*>(values + position * v.stride[1]);
    }
    return keys;
  }

  float scale_;
  float softcap_;
  bool causal_;
  int64_t window_;
  bool masked_;
  std::shared_ptr<const float> constant_mask_;  // dense; null: an activation, read from the call
};

}  // namespace

std::unique_ptr<Kernel> make_flash_attention_kernel(const KernelRequest& request) {
  for (const Value* input : request.node.inputs()) {
    if (input != nullptr && input->type().dtype != DType::kF32) return nullptr;
  }
  const Value* mask = request.node.input(3);
  std::shared_ptr<const float> constant_mask;
  if (mask != nullptr && mask->is_constant()) constant_mask = request.store.f32(mask->constant());
  return std::make_unique<FlashAttentionKernel>(request.node.attrs(), mask != nullptr, std::move(constant_mask));
}

}  // namespace atb
