// SPDX-License-Identifier: Apache-2.0
// Puts kv_append and flash_attention_kv in the place of causal attentions.
#include "passes/cache_attention.h"

#include "core/error.h"
#include "ir/op.h"
#include "passes/cache_mask.h"
#include "passes/engine/rewriter.h"

namespace atb {
namespace {

bool same(const Dim& a, const Dim& b) { return equal(a, b) == Tri::kYes; }

template <class... Parts>
void require_cacheable(bool ok, const std::string& scope, const Parts&... parts) {
  require(ok, Code::kUnsupported, "[cache_attention] ", scope.empty() ? "the graph" : scope, ": ", parts...);
}

Node* attention_in(const Graph& graph, const std::string& scope) {
  Node* found = nullptr;
  for (Node* node : graph.nodes()) {
    if (!node->is("flash_attention") || node->scope() != scope) continue;
    require_cacheable(found == nullptr, scope, "two attentions, ", found == nullptr ? "" : found->name(), " and ",
                      node->name(), "; a slot of the cache belongs to one");
    found = node;
  }
  require_cacheable(found != nullptr, scope,
                    "no attention that SDPA could fuse; a cache needs softmax(q k^T * scale + mask) v in one piece");
  return found;
}

// Builds nothing that stays.
bool covers_cache(Graph& graph, Node* attention) {
  Value* mask = attention->input(3);
  Rewriter rewriter(graph, attention);
  return mask == nullptr || mask_over_cache(rewriter, mask, attention->input(1)->dim(1)) != nullptr;
}

void check(Graph& graph, Node& attention, const std::string& scope) {
  const Value* q = attention.input(0);
  const Value* k = attention.input(1);
  require_cacheable(covers_cache(graph, &attention), scope, "the attention has a mask of its own, ",
                    attention.input(3) == nullptr ? "" : attention.input(3)->type().str(),
                    ", that says nothing of cached keys; mask them by an input over all keys [..., S], of which the "
                    "last T are the call's, or by causality and a window");
  require_cacheable(attention.attrs().flag("causal"), scope,
                    "the attention is not causal; a token cannot see later ones through a cache; set causal=True");
  require_cacheable(same(q->dim(1), k->dim(1)), scope, "queries ", to_string(q->shape()), ", keys ",
                    to_string(k->shape()), "; a call appends as many keys to the cache as it has queries");
  require_cacheable(k->dim(2).is_constant() && k->dim(3).is_constant(), scope, "keys ", to_string(k->shape()),
                    "; heads and head size must be known numbers");
}

// [B, T, heads, D] as the rows of a ragged step.
Value* as_rows(Rewriter& rewriter, Value* x) {
  return rewriter.reshape(x, {x->dim(0) * x->dim(1), x->dim(2), x->dim(3)});
}

// Rewrites one attention; gives the state after it.
Value* cache(Graph& graph, Node* attention, int64_t slot, Value* kv) {
  Rewriter rewriter(graph, attention);
  Value* k = as_rows(rewriter, attention->input(1));
  Value* v = as_rows(rewriter, attention->input(2));
  kv = rewriter.value("kv_append", {k, v, kv}, {{"slot", slot}});
  Value* q = as_rows(rewriter, attention->input(0));
  std::vector<Value*> inputs = {q, kv};
  if (Value* mask = attention->input(3)) {
    inputs.push_back(mask_over_cache(rewriter, mask, attention->input(1)->dim(1)));
  }
  Value* out = rewriter.value("flash_attention_kv", inputs, kv_attention_attrs(*attention, slot));
  rewriter.replace(attention->output(), rewriter.reshape(out, attention->output()->shape()));
  rewriter.retire({attention});
  const std::optional<std::string> refused = rewriter.commit();
  require(!refused, Code::kInternal, "[cache_attention] ", refused.value_or(""));
  return kv;
}

}  // namespace

Attrs kv_attention_attrs(const Node& attention, int64_t slot) {
  const Attrs& own = attention.attrs();
  Attrs attrs = {{"slot", slot},
                 {"scale", own.real("scale")},
                 {"causal", true},
                 {"window", own.integer("window")},
                 {"kv_heads", attention.input(1)->dim(2).constant()}};
  if (own.has("softcap")) attrs.set("softcap", own.real("softcap"));
  return attrs;
}

void cache_attention(Graph& graph, const std::vector<std::string>& scopes) {
  if (scopes.empty()) return;
  std::map<const Node*, int64_t> slots;
  for (const std::string& scope : scopes) {
    Node* attention = attention_in(graph, scope);
    check(graph, *attention, scope);
    const bool fresh = slots.emplace(attention, static_cast<int64_t>(slots.size())).second;
    require_cacheable(fresh, scope, "named twice; a slot of the cache belongs to one attention");
  }
  Value* kv = graph.add_input("kv", {DType::kState, {}, nullptr});
  for (Node* node : std::vector<Node*>(graph.nodes())) {  // versions of the state follow the order of execution
    const auto slot = slots.find(node);
    if (slot != slots.end()) kv = cache(graph, node, slot->second, kv);
  }
  std::vector<Value*> outputs = graph.outputs();
  std::vector<std::string> names = graph.output_names();
  outputs.push_back(kv);
  names.emplace_back("kv");
  graph.set_outputs(std::move(outputs), std::move(names));
}

std::vector<CachedSlot> cached_slots(const Graph& graph) {
  std::vector<CachedSlot> slots;
  for (const Node* node : graph.nodes()) {
    if (!node->is("flash_attention_kv")) continue;
    const auto slot = static_cast<size_t>(node->attrs().integer("slot"));
    const bool viewed = node->output()->uses().size() == 1 && node->output()->uses()[0].node->is("reshape");
    require(viewed, Code::kInternal, "[cache_attention] ", node->name(), ": its result is not seen as [B, T, H, D]");
    const Value* result = node->output()->uses()[0].node->output();
    if (slots.size() <= slot) slots.resize(slot + 1);
    slots[slot] = {node->scope(),
                   result->dim(0),
                   result->dim(1),
                   node->attrs().integer("kv_heads"),
                   node->input(0)->dim(2).constant(),
                   std::nullopt};
    if (const Value* mask = node->input(2)) slots[slot].mask_keys = mask->dim(3);
  }
  return slots;
}

}  // namespace atb
