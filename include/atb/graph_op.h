// SPDX-License-Identifier: Apache-2.0
// Blocks declared as lists of items, which run as one graph:
//
//   atb::GraphOp block({atb::items::layer_norm(), atb::items::linear("up", 256), atb::items::silu(),
//                       atb::items::linear("down", 64), atb::items::residual_add()});
//   for (const auto& parameter : block.parameters(64)) block.set_parameter(parameter.name, weights(parameter));
//   const atb::Array y = block({.x = {x.data(), atb::ElementType::kF32, {1, tokens, 64}}});
//
// The items and what they compute are those of docs/graphop.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "atb/array.h"
#include "atb/block_plugin.h"
#include "atb/export.h"
#include "atb/kv_cache.h"

namespace atb {

// One item: made by the functions of atb::items, or by hand for options that these leave at their defaults.
struct GraphItem {
  using Option = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>>;

  std::string kind;  // "linear"
  std::string name;  // prefix of its parameters; empty, or the name of an argument of the call: its index is
  std::map<std::string, Option> options{};
  std::vector<std::vector<GraphItem>> branches{};

  // The same with one more option, as linear("q", 64).with("bias", false).
  GraphItem with(const std::string& option, Option value) const {
    GraphItem copy = *this;
    copy.options[option] = std::move(value);
    return copy;
  }
};

namespace items {

inline GraphItem layer_norm(std::string name = {}, double eps = 1e-5) {
  return {"layer_norm", std::move(name), {{"eps", eps}}};
}
inline GraphItem rms_norm(std::string name = {}, double eps = 1e-6) {
  return {"rms_norm", std::move(name), {{"eps", eps}}};
}
inline GraphItem linear(std::string name, int64_t out_features, bool bias = true) {
  return {"linear", std::move(name), {{"out_features", out_features}, {"bias", bias}}};
}
inline GraphItem flash_attention(std::string name, int64_t num_heads, bool causal = false) {
  return {"flash_attention", std::move(name), {{"num_heads", num_heads}, {"causal", causal}}};
}
inline GraphItem rotary_embedding(double theta = 10000.0) { return {"rotary_embedding", {}, {{"theta", theta}}}; }
inline GraphItem silu(std::string name = {}) { return {"silu", std::move(name)}; }
inline GraphItem gelu(std::string name = {}) { return {"gelu", std::move(name)}; }
inline GraphItem relu(std::string name = {}) { return {"relu", std::move(name)}; }
inline GraphItem softmax(std::string name = {}) { return {"softmax", std::move(name)}; }
inline GraphItem gated_mlp(std::string name, int64_t hidden_features) {
  return {"gated_mlp", std::move(name), {{"hidden_features", hidden_features}}};
}
inline GraphItem embedding(std::string name, int64_t num_embeddings, int64_t embedding_dim) {
  return {"embedding", std::move(name), {{"num_embeddings", num_embeddings}, {"embedding_dim", embedding_dim}}};
}
inline GraphItem add(std::string name = {}) { return {"add", std::move(name)}; }
inline GraphItem mul(std::string name = {}) { return {"mul", std::move(name)}; }
inline GraphItem concat(std::string name = {}) { return {"concat", std::move(name)}; }
inline GraphItem split(int64_t sections) { return {"split", {}, {{"sections", sections}}}; }
// `source`: "input" (the call's residual, else its first argument) or an earlier item's name; empty: the default.
inline GraphItem residual_add(std::string name = {}, std::string source = {}) {
  return {"residual_add", std::move(name), {{"source", std::move(source)}}};
}
inline GraphItem branch(std::vector<std::vector<GraphItem>> lists) { return {"branch", {}, {}, std::move(lists)}; }
inline GraphItem graph(std::vector<GraphItem> list, std::string name = {}) {
  return {"graph", std::move(name), {}, {std::move(list)}};
}
// An operator of ATB, or a kernel of a library that was loaded.
inline GraphItem custom(std::string name, std::string target) {
  return {"custom", std::move(name), {{"target", std::move(target)}}};
}

}  // namespace items

struct GraphOpOptions {
  int threads = 0;     // 0: all available CPUs
  int64_t layer = -1;  // of a model, for the context of plugins; -1: the block's slot in the cache of a call
};

// A shape and a name; the first values are the application's matter.
struct GraphParameter {
  std::string name;  // "qkv_proj.weight"
  std::vector<int64_t> shape;
};

// Arguments of a call; those without data are not given. With a cache, keys are those in it and then the call's.
struct GraphCall {
  ArrayView x;           // [batch, tokens, features], or token ids [batch, tokens]
  ArrayView key{};       // by default x
  ArrayView value{};     // by default x
  ArrayView residual{};  // by default x
  // [batch, keys], [batch, tokens, keys] or [batch, heads, tokens, keys]: bools (seen) or floats (added)
  ArrayView attention_mask{};
  ArrayView positions{};        // i32 or i64, [tokens] or [batch, tokens]; by default on from what the cache holds
  KvCache* kv_cache = nullptr;  // of attentions with the option kv_cache
};

// Several threads may call one block; calls wait for one another.
class ATB_API GraphOp {
 public:
  // kInvalidArgument names the item that is wrong.
  explicit GraphOp(std::vector<GraphItem> items, const GraphOpOptions& options = {});
  ~GraphOp();
  GraphOp(const GraphOp&) = delete;
  GraphOp& operator=(const GraphOp&) = delete;

  // What a call with inputs of so many features needs (0: token ids). kInvalidArgument where an item cannot take them.
  std::vector<GraphParameter> parameters(int64_t features) const;
  // Copies the values; a later call uses them. kNotFound for a name that the block has not.
  void set_parameter(const std::string& name, const ArrayView& values);
  // kFailedPrecondition names a parameter that was not set, kInvalidArgument what does not fit, kResourceExhausted a
  // cache that is full. A call that throws leaves its cache as it was.
  Array operator()(const GraphCall& call);

  // Where plugins may be registered: "pre_X" and "post_X", where X is an item's name (its index where it has none) or
  // what it is: attention, norm, linear, activation, mlp, residual.
  std::vector<std::string> plugin_points() const;
  // Calls from now on run a plugin at a point, after those that were registered there before: at pre_X on the inputs of
  // X and on its outputs, at post_X on the outputs. See docs/plugins.md. kInvalidArgument for a point that is none,
  // listing all, or a plugin that would do nothing there.
  PluginHandle register_plugin(const std::string& point, std::shared_ptr<Plugin> plugin);

  // The graph that ran last, after all fusions, as text; kFailedPrecondition before the first call.
  std::string graph_text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace atb
