// SPDX-License-Identifier: Apache-2.0
// RoPE+KV: rotary on q and k, then appending k and v to the cache, becomes one operator that writes rotated keys
// straight into the KV blocks. Runs after insert_kv_cache.
#include "passes/engine/matcher.h"
#include "passes/engine/pattern.h"
#include "passes/engine/rewriter.h"

namespace atb {
namespace {

// The appended keys may be either output: the other one is the queries.
size_t key_output(const Match& match) { return static_cast<size_t>(match.value("rotated keys")->output_index()); }

std::optional<Mismatch> check_keys(const Match& match) {
  const Value* keys = match.value("rotated keys");
  const Node* append = match.node("append");
  if (keys->graph()->is_output(keys)) return Mismatch{append, "a graph output", "keys read by the cache alone"};
  for (const Use& use : keys->uses()) {
    if (use.node != append) return Mismatch{append, "also read by " + use.node->name(), "keys read by the cache alone"};
  }
  return std::nullopt;
}

void rewrite(const Match& match, Rewriter& rewriter) {
  const Node* rotary = match.node("rotated keys");
  const Node* append = match.node("append");
  const size_t key = key_output(match);
  const Node* fused =
      rewriter.node("rotary_kv_append",
                    {rotary->input(1 - key), rotary->input(key), match.value("v"), match.value("cos"),
                     match.value("sin"), match.value("kv")},
                    {{"slot", append->attrs().integer("slot")}, {"interleaved", rotary->attrs().flag("interleaved")}});
  rewriter.replace(rotary->output(1 - key), fused->output(0));
  rewriter.replace(append->output(), fused->output(1));
}

}  // namespace

void register_pattern_rope_kv(PatternRegistry& registry) {
  Pattern p("RoPE+KV", "RotaryKVAppend", 100, PatternGroup::kState);
  const PatternId rotary =
      p.op("rotated keys", {"rotary_embedding"}, {p.any("first"), p.any("second"), p.any("cos"), p.any("sin")});
  p.extra_output(p.output(rotary, kAnyOutput));  // the queries are read on; check_keys looks after the keys
  p.root(p.op("append", {"kv_append"}, {rotary, p.any("v"), p.any("kv")}));
  p.where("keys read by the cache alone", check_keys);
  p.rewrite(rewrite);
  registry.add(std::move(p));
}

}  // namespace atb
