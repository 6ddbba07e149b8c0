// SPDX-License-Identifier: Apache-2.0
// Pass: gives attentions of a graph on [B, T, ...] a KV cache each, where the caller says what the cache means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace atb {

// In a fused graph, the flash_attention in scope scopes[i] becomes: queries, keys and values [B, T, heads, D] as rows
// [B * T, heads, D], kv_append to slot i, flash_attention_kv of slot i, and back to [B, T, heads, D]. The state goes in
// as the last input and out as the last output, both named `kv`. B sequences of T tokens each stand one after another.
// Nothing is proven about what mixes tokens (insert_kv_cache does that): the caller says that a call's tokens follow
// those in the cache, and feeds positions that say so.
//
// A mask of its own must say what all cached keys are: where it is made of x[..., S - T:], or of an input, the cached
// attention gets the same made of all of x (see passes/cache_mask.h), and S must be the keys that the cache then holds.
//
// kUnsupported, naming the scope, and the graph stays as it was: no attention there or several, one that is not causal,
// has another mask, or has another number of keys than queries.
void cache_attention(Graph& graph, const std::vector<std::string>& scopes);

// A slot of a graph that went through cache_attention.
struct CachedSlot {
  std::string scope;
  Dim batch;   // sequences
  Dim tokens;  // of each
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  std::optional<Dim> mask_keys;  // keys that its mask is for: those in the cache and the call's; none without a mask
};

// Its slots by index; empty for a graph without state.
std::vector<CachedSlot> cached_slots(const Graph& graph);

// Attributes of the flash_attention_kv over `slot` that stands for a causal flash_attention.
Attrs kv_attention_attrs(const Node& attention, int64_t slot);

}  // namespace atb
