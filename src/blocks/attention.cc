// SPDX-License-Identifier: Apache-2.0
// Attention in plain operators.
#include "blocks/attention.h"

#include <limits>

namespace atb {
namespace {

// Keys within `window` of their query, and not after it.
Value* in_window(Builder& b, Value* visible, Value* queries, Value* keys, int64_t window, const std::string& prefix) {
  const auto reach = static_cast<int32_t>(window - 1);
  Value* distance = b.constant(Constant::from_i32(prefix + "reach", {}, {&reach, 1}));
  Value* oldest = b("sub", {queries, distance}, {}, prefix + "oldest");
  Value* near = b("less_equal", {oldest, keys}, {}, prefix + "near");
  return b("logical_and", {visible, near}, {}, prefix + "visible_near");
}

}  // namespace

Value* named_scalar(Builder& b, const char* name, double value) {
  const auto element = static_cast<float>(value);
  return b.constant(Constant::from_f32(name, {}, {&element, 1}));
}

Value* causal_mask(Builder& b, Value* queries, Value* keys, int64_t window, const std::string& prefix) {
  keys = b.reshape(keys, {1, keys->dim(0)}, prefix + "key_pos");
  queries = b.reshape(queries, {queries->dim(0), 1}, prefix + "query_pos");
  Value* visible = b("less_equal", {keys, queries}, {}, prefix + "visible");
  if (window > 0) visible = in_window(b, visible, queries, keys, window, prefix);
  Value* zero = named_scalar(b, "zero", 0.0);
  Value* hidden = named_scalar(b, "minus_inf", -std::numeric_limits<double>::infinity());
  return b("where", {visible, zero, hidden}, {}, prefix + "mask");
}

Value* plain_attention(Builder& b, Value* q, Value* k, Value* v, const PlainAttention& options) {
  const auto named = [&](const std::string& name) { return options.prefix + name; };
  const Dim batch = q->dim(0), tokens = q->dim(1), head_dim = q->dim(3), kv_heads = k->dim(2);
  const Dim heads = q->dim(2), group = Dim::floordiv(heads, kv_heads);
  const auto grouped = [&](Value* rows, const Dim& in_group, const std::string& name) {
    Value* split = b.reshape(rows, {batch, rows->dim(1), kv_heads, in_group, head_dim}, named(name + "_grouped"));
    return b.transpose(split, {0, 2, 3, 1, 4}, named(name + "_by_head"));
  };
  q = grouped(q, group, "q");
  k = grouped(k, 1, "k");
  v = grouped(v, 1, "v");
  Value* scores = b("matmul", {q, k}, {{"transpose_b", true}}, named("scores"));
  scores = b("mul", {scores, options.scale}, {}, named("scaled"));
  if (options.softcap != nullptr) {
    Value* bounded = b("tanh", {scores}, {}, named("bounded"));
    scores = b("mul", {bounded, options.softcap}, {}, named("capped"));
  }
  if (options.mask != nullptr) scores = b("add", {scores, options.mask}, {}, named("masked"));
  if (options.second_mask != nullptr) scores = b("add", {scores, options.second_mask}, {}, named("masked_again"));
  Value* probs = b("softmax", {scores}, {}, named("probs"));
  Value* out = b("matmul", {probs, v}, {}, named("context"));
  out = b.transpose(out, {0, 3, 1, 2, 4}, named("context_by_token"));
  return b.reshape(out, {batch, tokens, heads * head_dim}, named("attn"));
}

}  // namespace atb
