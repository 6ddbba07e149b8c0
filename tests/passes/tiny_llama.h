// SPDX-License-Identifier: Apache-2.0
// A tiny cache-free decoder in the spelling of the llama family, with random weights and knobs for other spellings.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"

namespace atb::test {

struct TinyConfig {
  int layers = 2;
  int64_t hidden = 24, ff = 40, vocab = 29;
  int64_t heads = 4, kv_heads = 2, head_dim = 8;
  int64_t rotary_dim = 8;
  bool interleaved = false;
  bool q_bias = false, k_bias = false, v_bias = false, gate_bias = false, up_bias = false;
  bool head_norm = false;           // rms_norm of each head of q and k before rotary
  bool layer_norm = false;          // instead of rms_norm
  std::string activation = "silu";  // relu, gelu_none, gelu_tanh
  std::string scale = "mul";        // div, none
  std::string mask = "causal";      // window (3 keys), fill (where on the scores), none
  bool flat_heads = false;          // [B, H, T, D] attention (needs kv_heads = heads or 1) instead of [B, KV, G, T, D]
  bool swapped = false;             // operands of commutative operators the other way round
  bool absent = false;              // weights without data, as from a config alone
  DType dtype = DType::kF32;
};

// Numbers in (-1, 1), the same in every run.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  float next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<float>(static_cast<double>(state_ >> 33) / static_cast<double>(1u << 30) - 1.0);
  }
  std::vector<float> vector(int64_t count, float scale, float offset = 0) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = next() * scale + offset;
    return values;
  }

 private:
  uint64_t state_;
};

class TinyLlama {
 public:
  explicit TinyLlama(const TinyConfig& config)
      : c_(config), graph_(std::make_unique<Graph>("tiny")), b_(*graph_), random_(7) {}

  std::unique_ptr<Graph> build() {
    Value* ids = graph_->add_input("ids", {DType::kI32, {batch_, tokens_}, nullptr});
    Value* x = b_("embedding", {ids, weight("embed.weight", {c_.vocab, c_.hidden}, 1)}, {}, "embed");
    Value* positions = b_("iota", {}, {{"shape", Shape{tokens_}}}, "pos");
    Node* table = b_.node("rotary_table", {positions, inv_freq()}, {}, "cos");
    cos_ = table->output(0);
    sin_ = table->output(1);
    if (c_.mask != "none") make_mask(positions);
    for (int layer = 0; layer < c_.layers; ++layer) x = add_layer(x, layer);
    b_.set_layer(-1);
    b_.set_scope("model.norm");
    x = norm(x, "norm");
    b_.set_scope("lm_head");
    Value* logits = b_("linear", {x, weight("head.weight", {c_.vocab, c_.hidden}, 0.4F)}, {}, "logits");
    graph_->set_outputs({logits}, {"logits"});
    return std::move(graph_);
  }

 private:
  Value* weight(const std::string& name, std::vector<int64_t> shape, float scale, float offset = 0) {
    if (c_.absent) return b_.constant(Constant::absent(name, c_.dtype, nullptr, shape));
    int64_t count = 1;
    for (int64_t extent : shape) count *= extent;
    return b_.constant(Constant::from_f32(name, std::move(shape), random_.vector(count, scale, offset)));
  }

  Value* scalar(double value) {
    if (c_.dtype == DType::kF32) return b_.scalar(value);
    std::vector<std::byte> bytes(2);
    const uint16_t half = f32_to_f16(static_cast<float>(value));
    std::memcpy(bytes.data(), &half, 2);
    return b_.constant(Constant::from_storage("scalar", c_.dtype, nullptr, {}, storage_from_bytes(bytes), 0));
  }

  Value* inv_freq() {
    std::vector<float> values;
    for (int64_t i = 0; i < c_.rotary_dim; i += 2) {
      values.push_back(
          static_cast<float>(std::pow(100.0, -static_cast<double>(i) / static_cast<double>(c_.rotary_dim))));
    }
    const int64_t count = static_cast<int64_t>(values.size());
    return b_.constant(Constant::from_f32("inv_freq", {count}, values));
  }

  void make_mask(Value* positions) {
    Value* keys = b_.reshape(positions, {Dim(1), tokens_});
    Value* queries = b_.reshape(positions, {tokens_, Dim(1)});
    visible_ = b_("less_equal", {keys, queries}, {}, "visible");
    Value* seen = scalar(0.0);
    Value* blocked = scalar(-std::numeric_limits<double>::infinity());
    mask_ = b_("where", {visible_, seen, blocked}, {}, "mask");
    if (c_.mask != "window") return;
    const int32_t two = 2;  // p - 2 <= s: three keys
    Value* oldest = b_("sub", {queries, b_.constant(Constant::from_i32("two", {}, std::span(&two, 1)))});
    mask_ = b_("where", {b_("less_equal", {oldest, keys}), mask_, blocked}, {}, "window_mask");
  }

  Value* norm(Value* x, const std::string& name) {
    Value* w = weight(name + ".weight", {x->dim(-1).constant()}, 0.3F, 1);
    if (!c_.layer_norm) return b_("rms_norm", {x, w}, {{"eps", 1e-5}}, name);
    return b_("layer_norm", {x, w, weight(name + ".bias", {x->dim(-1).constant()}, 0.2F)}, {{"eps", 1e-5}}, name);
  }

  Value* linear(Value* x, const std::string& name, int64_t out, bool bias) {
    const int64_t in = x->dim(-1).constant();
    const float scale = 1.7F / std::sqrt(static_cast<float>(in));
    std::vector<Value*> inputs = {x, weight(name + ".weight", {out, in}, scale)};
    if (bias) inputs.push_back(weight(name + ".bias", {out}, 0.5F));
    return b_("linear", inputs, {}, name);
  }

  Value* both(const char* op, Value* a, Value* b, const std::string& name) {
    return c_.swapped ? b_(op, {b, a}, {}, name) : b_(op, {a, b}, {}, name);
  }

  // [B, T, heads * D] -> rotated [B, T, heads, D].
  Value* rotated(Value* x, const std::string& name, int64_t heads) {
    x = b_.reshape(x, {batch_, tokens_, Dim(heads), Dim(c_.head_dim)}, name + "_heads");
    if (c_.head_norm) x = b_("rms_norm", {x, weight(name + "_norm.weight", {c_.head_dim}, 0.3F, 1)}, {{"eps", 1e-5}});
    return b_("rotary", {x, cos_, sin_}, {{"interleaved", c_.interleaved}}, name + "_rot");
  }

  Value* heads_out(Value* x, int64_t kv, int64_t group) {
    const Dim d = c_.head_dim;
    if (c_.flat_heads) return b_.transpose(b_.reshape(x, {batch_, tokens_, Dim(kv * group), d}), {0, 2, 1, 3});
    return b_.transpose(b_.reshape(x, {batch_, tokens_, Dim(kv), Dim(group), d}), {0, 2, 3, 1, 4});
  }

  Value* attention(Value* x, const std::string& l) {
    Value* q = rotated(linear(x, l + "q", c_.heads * c_.head_dim, c_.q_bias), l + "q", c_.heads);
    Value* k = rotated(linear(x, l + "k", c_.kv_heads * c_.head_dim, c_.k_bias), l + "k", c_.kv_heads);
    Value* v = linear(x, l + "v", c_.kv_heads * c_.head_dim, c_.v_bias);
    v = b_.reshape(v, {batch_, tokens_, Dim(c_.kv_heads), Dim(c_.head_dim)});
    q = heads_out(q, c_.kv_heads, c_.heads / c_.kv_heads);
    k = heads_out(k, c_.kv_heads, 1);
    v = heads_out(v, c_.kv_heads, 1);
    Value* scores = b_("matmul", {q, k}, {{"transpose_b", true}}, l + "scores");
    const double scale = 1.0 / std::sqrt(static_cast<double>(c_.head_dim));
    if (c_.scale == "mul") scores = both("mul", scores, scalar(scale), l + "scaled");
    if (c_.scale == "div") scores = b_("div", {scores, scalar(1 / scale)}, {}, l + "scaled");
    if (c_.mask == "fill") {
      scores = b_("where", {visible_, scores, scalar(-std::numeric_limits<double>::infinity())}, {}, l + "masked");
    } else if (mask_ != nullptr) {
      scores = both("add", scores, mask_, l + "masked");
    }
    Value* out = b_("matmul", {b_("softmax", {scores}, {}, l + "probs"), v}, {}, l + "attn");
    out = c_.flat_heads ? b_.transpose(out, {0, 2, 1, 3}) : b_.transpose(out, {0, 3, 1, 2, 4});
    return b_.reshape(out, {batch_, tokens_, Dim(c_.heads * c_.head_dim)});
  }

  Value* activation(Value* x, const std::string& name) {
    if (c_.activation.starts_with("gelu")) return b_("gelu", {x}, {{"approximate", c_.activation.substr(5)}}, name);
    return b_(c_.activation, {x}, {}, name);
  }

  Value* add_layer(Value* x, int layer) {
    const std::string l = "l" + std::to_string(layer) + ".";
    b_.set_layer(layer);
    b_.set_scope("model.layers." + std::to_string(layer) + ".self_attn");
    Value* attended = linear(attention(norm(x, l + "attn_norm"), l), l + "o", c_.hidden, false);
    x = both("add", x, attended, l + "attn_sum");
    b_.set_scope("model.layers." + std::to_string(layer) + ".mlp");
    Value* y = norm(x, l + "ffn_norm");
    Value* gate = activation(linear(y, l + "gate", c_.ff, c_.gate_bias), l + "act");
    Value* product = both("mul", gate, linear(y, l + "up", c_.ff, c_.up_bias), l + "product");
    return both("add", x, linear(product, l + "down", c_.hidden, false), l + "ffn_sum");
  }

  TinyConfig c_;
  std::unique_ptr<Graph> graph_;
  Builder b_;
  Random random_;
  Dim batch_ = Dim::symbol("B");
  Dim tokens_ = Dim::symbol("T");
  Value* cos_ = nullptr;
  Value* sin_ = nullptr;
  Value* mask_ = nullptr;
  Value* visible_ = nullptr;
};

inline std::unique_ptr<Graph> tiny_llama(const TinyConfig& config = {}) { return TinyLlama(config).build(); }

}  // namespace atb::test
