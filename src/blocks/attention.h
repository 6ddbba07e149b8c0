// SPDX-License-Identifier: Apache-2.0
// Attention in plain operators, as every front door inside the library spells it: what the pattern SDPA looks for.
#pragma once

#include <cstdint>
#include <string>

#include "ir/builder.h"

namespace atb {

// An f32 constant of shape [].
Value* named_scalar(Builder& b, const char* name, double value);

// 0 where a query at row t sees the key at row s, -inf elsewhere: [T, S] for positions [T] and [S] (i32 or i64).
// Query t sees s <= t, and with a window only s > t - window. Names of nodes start with `prefix`.
Value* causal_mask(Builder& b, Value* queries, Value* keys, int64_t window = 0, const std::string& prefix = {});

struct PlainAttention {
  Value* scale = nullptr;        // factor of the scores, shape []
  Value* softcap = nullptr;      // tanh of the scaled scores times this; null: none. `scale` is already divided by it
  Value* mask = nullptr;         // added to the scores [B, KV, G, T, S]; null: none
  Value* second_mask = nullptr;  // added after it
  std::string prefix{};          // of the nodes' names
};

// softmax(q k^T * scale + mask) v of q [B, T, H, D], k and v [B, S, KV, D]: [B, T, H * D]. The H / KV query heads of a
// group meet their key head by broadcasting.
Value* plain_attention(Builder& b, Value* q, Value* k, Value* v, const PlainAttention& options);

}  // namespace atb
