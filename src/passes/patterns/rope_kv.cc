// SPDX-License-Identifier: Apache-2.0
// RoPE+KV: rotary on q and k, then appending k and v to the cache, becomes one operator that writes rotated keys
// straight into the KV blocks. Runs after insert_kv_cache, whose rows are [tokens, heads, D], and after
// cache_attention, where keys [B, T, heads, D] are seen as such rows.
#include "passes/engine/matcher.h"
#include "passes/engine/pattern.h"
#include "passes/engine/rewriter.h"

namespace atb {
namespace {

// The appended keys may be either output: the other one is the queries.
size_t key_output(const Match& match) { return static_cast<size_t>(match.value("rotated keys")->output_index()); }

bool same(const Dim& a, const Dim& b) { return equal(a, b) == Tri::kYes; }

// What reads the keys: the append, or the view of them that it reads.
const Node* reader(const Match& match) { return match.has("rows") ? match.node("rows") : match.node("append"); }

std::optional<Mismatch> check_keys(const Match& match) {
  const Value* keys = match.value("rotated keys");
  const Node* append = match.node("append");
  if (keys->graph()->is_output(keys)) return Mismatch{append, "a graph output", "keys read by the cache alone"};
  for (const Use& use : keys->uses()) {
    if (use.node != reader(match)) {
      return Mismatch{append, "also read by " + use.node->name(), "keys read by the cache alone"};
    }
  }
  return std::nullopt;
}

std::optional<Mismatch> check_rows(const Match& match) {
  const Shape& keys = match.value("rotated keys")->shape();
  const Shape& rows = match.node("append")->input(0)->shape();
  if (!match.has("rows")) return std::nullopt;
  const bool merged =
      keys.size() == 4 && same(keys[0] * keys[1], rows[0]) && same(keys[2], rows[1]) && same(keys[3], rows[2]);
  if (merged) return std::nullopt;
  return Mismatch{match.node("rows"), to_string(keys) + " seen as " + to_string(rows), "[B, T, H, D] as [B * T, H, D]"};
}

// Values as the keys are seen before they are rows.
Value* values_like(Rewriter& rewriter, Value* values, const Shape& keys) {
  const Node* view = values->producer();
  const bool was_so = view != nullptr && view->is("reshape") && view->input(0)->shape() == keys;
  return was_so ? view->input(0) : rewriter.reshape(values, keys);
}

void rewrite(const Match& match, Rewriter& rewriter) {
  const Node* rotary = match.node("rotated keys");
  const Node* append = match.node("append");
  const size_t key = key_output(match);
  Value* values = values_like(rewriter, match.value("v"), rotary->input(key)->shape());
  const Node* fused = rewriter.node(
      "rotary_kv_append",
      {rotary->input(1 - key), rotary->input(key), values, match.value("cos"), match.value("sin"), match.value("kv")},
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
  const PatternId keys = p.one_of("keys", {p.op("rows", {"reshape"}, {rotary}), rotary});
  p.root(p.op("append", {"kv_append"}, {keys, p.any("v"), p.any("kv")}));
  p.where("keys read by the cache alone", check_keys);
  p.where("rows of tokens", check_rows);
  p.rewrite(rewrite);
  registry.add(std::move(p));
}

}  // namespace atb
