// SPDX-License-Identifier: Apache-2.0
// Layers of causal attention on a hidden state [B, T, C], as a declared block emits them, with random weights.
#pragma once

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"
#include "passes/tiny_llama.h"

namespace atb::test {

struct CausalConfig {
  int layers = 1;
  int64_t heads = 4, kv_heads = 2, head_dim = 6;
  int64_t window = 0;  // visible keys; 0: all
  double softcap = 0;  // 0: none
  // "none"; "input": causal, and an input `mask` [B, 1, T, T] added; "cache": the last T keys of bools [B, S] too;
  // "cache floats": those of floats [B, H, T, S]; "numbers": a mask that is made of the tokens
  std::string mask = "causal";
  bool rotary = false;  // over the input `positions` [T]
  bool cross = false;   // keys and values of an input `memory` [B, S, C]
};

// Inputs x [B, T, C] and those of the config, C = heads * head_dim; output y [B, T, C] = x + attention of each layer,
// whose nodes have the scope "layers.N.attn".
class CausalBlock {
 public:
  explicit CausalBlock(const CausalConfig& config)
      : c_(config), width_(config.heads * config.head_dim), graph_(std::make_unique<Graph>("block")), b_(*graph_) {}

  std::unique_ptr<Graph> build() {
    Value* x = graph_->add_input("x", {DType::kF32, {batch_, tokens_, width_}, nullptr});
    Value* memory = c_.cross ? graph_->add_input("memory", {DType::kF32, {batch_, keys_, width_}, nullptr}) : nullptr;
    if (c_.rotary) {
      Value* positions = graph_->add_input("positions", {DType::kI32, {tokens_}, nullptr});
      std::vector<float> frequencies;
      for (int64_t i = 0; i < c_.head_dim / 2; ++i) frequencies.push_back(1.0F / static_cast<float>(1 + 3 * i));
      Value* inv_freq = b_.constant(Constant::from_f32("inv_freq", {c_.head_dim / 2}, frequencies));
      rotary_ = b_.node("rotary_table", {positions, inv_freq});
    }
    if (c_.mask == "input") {
      extra_ = graph_->add_input("mask", {DType::kF32, {batch_, 1, tokens_, tokens_}, nullptr});
    }
    if (c_.mask == "numbers") {
      Value* sums = b_("sum", {x}, {{"axes", std::vector<int64_t>{2}}});
      extra_ = b_.reshape(sums, {batch_, 1, 1, tokens_});
    }
    if (c_.mask.starts_with("cache")) extra_ = cache_mask();
    if (c_.mask != "none") mask_ = causal_mask(memory == nullptr ? tokens_ : keys_);
    for (int layer = 0; layer < c_.layers; ++layer) {
      prefix_ = "layers." + std::to_string(layer) + ".attn";
      b_.set_scope(prefix_);
      x = b_("add", {x, attention(x, memory == nullptr ? x : memory)}, {}, prefix_ + ".sum");
    }
    graph_->set_outputs({x}, {"y"});
    return std::move(graph_);
  }

 private:
  // Of the call's own keys, from an input over all that a cache holds.
  Value* cache_mask() {
    const bool floats = c_.mask == "cache floats";
    const Shape shape = floats ? Shape{batch_, c_.heads, tokens_, keys_} : Shape{batch_, keys_};
    Value* mask = graph_->add_input("mask", {floats ? DType::kF32 : DType::kBool, shape, nullptr});
    mask = b_("slice", {mask}, {{"axis", int64_t{-1}}, {"bounds", Shape{keys_ - tokens_, keys_}}});
    if (floats) return mask;
    mask = b_.reshape(mask, {batch_, 1, 1, tokens_});
    return b_("where", {mask, b_.scalar(0.0), b_.scalar(-std::numeric_limits<double>::infinity())});
  }

  Value* integer(int32_t value) { return b_.constant(Constant::from_i32("number", {}, {&value, 1})); }

  Value* causal_mask(const Dim& keys) {
    Value* rows = b_.reshape(b_("iota", {}, {{"shape", Shape{tokens_}}}), {tokens_, 1});
    Value* columns = b_.reshape(b_("iota", {}, {{"shape", Shape{keys}}}), {1, keys});
    Value* visible = b_("less_equal", {columns, rows});
    if (c_.window > 0) {
      Value* near = b_("less_equal", {b_("sub", {rows, integer(static_cast<int32_t>(c_.window - 1))}), columns});
      visible = b_("logical_and", {visible, near});
    }
    return b_("where", {visible, b_.scalar(0.0), b_.scalar(-std::numeric_limits<double>::infinity())});
  }

  Value* project(Value* x, const std::string& name, int64_t out) {
    const float scale = 1.5F / std::sqrt(static_cast<float>(width_));
    Value* weight =
        b_.constant(Constant::from_f32(prefix_ + "." + name, {out, width_}, random_.vector(out * width_, scale)));
    return b_("linear", {x, weight});
  }

  Value* heads_of(Value* x, const std::string& name, int64_t heads) {
    Value* rows = project(x, name, heads * c_.head_dim);
    rows = b_.reshape(rows, {batch_, rows->dim(1), heads, c_.head_dim});
    const bool rotated = rotary_ != nullptr && name != "v";
    return rotated ? b_("rotary", {rows, rotary_->output(0), rotary_->output(1)}) : rows;
  }

  Value* attention(Value* x, Value* memory) {
    const int64_t kv = c_.kv_heads, group = c_.heads / c_.kv_heads;
    const auto by_head = [&](Value* rows, int64_t in_group) {
      return b_.transpose(b_.reshape(rows, {batch_, rows->dim(1), kv, in_group, c_.head_dim}), {0, 2, 3, 1, 4});
    };
    Value* q = by_head(heads_of(x, "q", c_.heads), group);
    Value* k = by_head(heads_of(memory, "k", kv), 1);
    Value* v = by_head(heads_of(memory, "v", kv), 1);
    Value* scores = b_("matmul", {q, k}, {{"transpose_b", true}});
    const double scale = 1 / std::sqrt(static_cast<double>(c_.head_dim));
    if (c_.softcap > 0) {
      scores = b_("mul", {b_("tanh", {b_("mul", {scores, b_.scalar(scale / c_.softcap)})}), b_.scalar(c_.softcap)});
    } else {
      scores = b_("mul", {scores, b_.scalar(scale)});
    }
    if (mask_ != nullptr) scores = b_("add", {scores, mask_});
    if (extra_ != nullptr) {
      const bool each_head = extra_->dim(1) == Dim(c_.heads);
      scores = b_("add", {scores, b_.reshape(extra_, {batch_, each_head ? Dim(kv) : Dim(1),
                                                      each_head ? Dim(group) : Dim(1), extra_->dim(2), tokens_})});
    }
    Value* out = b_("matmul", {b_("softmax", {scores}), v});
    out = b_.reshape(b_.transpose(out, {0, 3, 1, 2, 4}), {batch_, tokens_, width_});
    return project(out, "o", width_);
  }

  const CausalConfig c_;
  const int64_t width_;
  const Dim batch_ = Dim::symbol("B", 1, 16), tokens_ = Dim::symbol("T", 1, 4096), keys_ = Dim::symbol("S", 1, 4096);
  std::unique_ptr<Graph> graph_;
  Builder b_;
  Random random_{11};
  std::string prefix_;
  Node* rotary_ = nullptr;
  Value* mask_ = nullptr;
  Value* extra_ = nullptr;
};

inline std::unique_ptr<Graph> causal_block(const CausalConfig& config = {}) { return CausalBlock(config).build(); }

// The scopes of its attentions.
inline std::vector<std::string> scopes_of(const CausalConfig& config) {
  std::vector<std::string> scopes;
  for (int layer = 0; layer < config.layers; ++layer) scopes.push_back("layers." + std::to_string(layer) + ".attn");
  return scopes;
}

}  // namespace atb::test
