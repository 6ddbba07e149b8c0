// SPDX-License-Identifier: Apache-2.0
// FlashAttention.
#include <cmath>
#include <optional>

#include "blocks/attention.h"
#include "blocks/emitter.h"
#include "blocks/items/rotary_util.h"

namespace atb {
namespace {

struct Heads {
  int64_t query = 0, kv = 0, dim = 0;
};

struct Streams {
  Value *q = nullptr, *k = nullptr, *v = nullptr;  // [B, T, heads * dim]
  Heads heads;
};

std::string text(int64_t number) { return std::to_string(number); }

// Whether what comes in is made by a projection: a linear, or something that may be one.
bool is_projected(const std::vector<BlockItem>& list, size_t index) {
  while (index > 0) {
    const BlockItem& before = list[--index];
    if (before.kind == "rotary_embedding" || before.kind == "dropout") continue;
    if (before.kind == "graph") return is_projected(before.branches[0], before.branches[0].size());
    return before.kind == "linear" || before.kind == "custom" || before.kind == "concat";
  }
  return false;
}

Heads heads_of(const ItemCall& call) {
  const Attrs& attrs = call.item.attrs;
  Heads heads{attrs.integer("num_heads"), attrs.integer("num_kv_heads"), attrs.integer("head_dim")};
  if (heads.kv == 0) heads.kv = heads.query;
  if (heads.query < 1 || heads.kv < 1 || heads.query % heads.kv != 0 || heads.dim < 0) {
    call.fail("num_heads " + text(heads.query) + " must be a multiple of num_kv_heads " + text(heads.kv) +
              ", and head_dim not be negative");
  }
  return heads;
}

Value* part(const ItemCall& call, Value* x, int64_t begin, int64_t size, const char* name) {
  return call.b("slice", {x}, {{"axis", int64_t{-1}}, {"bounds", Shape{begin, begin + size}}}, call.scope + "." + name);
}

// Each stream's slice of a projection [.., (heads + 2 kv heads) * dim].
Streams projected(const ItemCall& call, const Flow& flow, Heads heads) {
  const int64_t width = call.width(flow.single()), all = heads.query + 2 * heads.kv;
  const int64_t dim = heads.dim == 0 ? width / all : heads.dim;
  if (dim * all != width || dim == 0) {
    call.fail("the projection gives " + text(width) +
              " features; expected (num_heads + 2 * num_kv_heads) * head_dim = " +
              (heads.dim == 0 ? "a multiple of " + text(all) : text(all * dim)));
  }
  heads.dim = dim;
  Value* keys = flow.separate() ? flow.key : flow.single();
  Value* values = flow.separate() ? flow.value : flow.single();
  const int64_t q = heads.query * dim, kv = heads.kv * dim;
  return {part(call, flow.single(), 0, q, "q"), part(call, keys, q, kv, "k"), part(call, values, q + kv, kv, "v"),
          heads};
}

// Without a projection each stream is cut into heads as it is.
Streams unprojected(const ItemCall& call, const Flow& flow, Heads heads) {
  const int64_t width = call.width(flow.single());
  const int64_t dim = heads.dim == 0 ? width / heads.query : heads.dim;
  if (heads.kv != heads.query || dim * heads.query != width) {
    call.fail("reads " + text(width) + " features without a projection before it; expected num_heads * head_dim = " +
              (heads.dim == 0 ? "a multiple of " + text(heads.query) : text(heads.query * dim)) +
              " and num_kv_heads = num_heads");
  }
  heads.dim = dim;
  call.emitter.result().warnings.push_back(
      "[flash_attention] " + call.scope + ": no projection before it, so queries, keys and values are all the same " +
      text(width) + " features; a Linear with out_features=" + text(3 * width) + " was probably left out");
  return {flow.single(), flow.separate() ? flow.key : flow.single(), flow.separate() ? flow.value : flow.single(),
          heads};
}

Streams three_values(const ItemCall& call, const Flow& flow, Heads heads) {
  const Streams s{flow.values[0], flow.values[1], flow.values[2], {}};
  const int64_t width = call.width(s.q);
  heads.dim = heads.dim == 0 ? width / heads.query : heads.dim;
  if (width != heads.query * heads.dim || call.width(s.k) != heads.kv * heads.dim ||
      call.width(s.v) != heads.kv * heads.dim) {
    call.fail("is given " + text(width) + ", " + text(call.width(s.k)) + " and " + text(call.width(s.v)) +
              " features; expected num_heads * head_dim and twice num_kv_heads * head_dim");
  }
  return {s.q, s.k, s.v, heads};
}

Streams streams_of(const ItemCall& call, const Flow& flow) {
  const Heads heads = heads_of(call);
  if (flow.values.size() == 3) return three_values(call, flow, heads);
  if (flow.values.size() != 1) call.fail("is given 2 values; it takes one, or queries, keys and values");
  const int64_t width = call.width(flow.single());
  if (flow.separate() && (call.width(flow.key) != width || call.width(flow.value) != width)) {
    call.fail("query, key and value have " + text(width) + ", " + text(call.width(flow.key)) + " and " +
              text(call.width(flow.value)) + " features; they must be equal");
  }
  const bool split = heads.dim == 0 ? is_projected(call.list, call.index)
                                    : width != heads.query * heads.dim || heads.kv != heads.query;
  return split ? projected(call, flow, heads) : unprojected(call, flow, heads);
}

Value* to_heads(const ItemCall& call, Value* x, int64_t heads, int64_t dim, const char* name) {
  return call.b.reshape(x, {x->dim(0), x->dim(1), heads, dim}, call.scope + "." + name + "_heads");
}

const Attrs* rotary_of(const ItemCall& call, const Flow& flow) {
  const auto& own = call.item.branches;
  const bool one = own.empty() || (own[0].size() == 1 && own[0][0].kind == "rotary_embedding");
  if (!one || (!own.empty() && flow.rotary != nullptr))
    call.fail("takes one rotary embedding: rope, or an item before it");
  if (!own.empty()) return &own[0][0].attrs;
  return flow.rotary == nullptr ? nullptr : &flow.rotary->attrs;
}

// What a mask [..., S] over all keys of a cache says of the last T, those of the call.
Value* own_part(const ItemCall& call, Value* mask, const Dim& tokens) {
  const Dim keys = mask->dim(-1);
  if (keys == tokens || keys == Dim(1)) return mask;
  if (!call.item.attrs.flag("kv_cache")) {
    call.fail("attention_mask is " + mask->type().str() + " for " + tokens.str() +
              " keys; one over the keys of a cache needs kv_cache=True");
  }
  return call.b("slice", {mask}, {{"axis", int64_t{-1}}, {"bounds", Shape{keys - tokens, keys}}},
                call.scope + ".own_mask");
}

// [B, KV, G, T, S], or what broadcasts to it, of the mask of a call: [B, S], [B, T, S] or [B, H, T, S].
Value* mask_of(const ItemCall& call, const Heads& heads, const Dim& keys) {
  Value* mask = call.emitter.input("attention_mask");
  if (mask == nullptr) return nullptr;
  if (mask->rank() < 2 || mask->rank() > 4) {
    call.fail("attention_mask is " + mask->type().str() +
              "; expected [batch, keys], [batch, tokens, keys] or [batch, "
              "heads, tokens, keys]");
  }
  const DType dtype = mask->type().dtype;
  if (dtype != DType::kBool && !is_float(dtype)) {
    call.fail("attention_mask is " + mask->type().str() + "; expected bools (true: seen) or floats (added)");
  }
  mask = own_part(call, mask, keys);
  const Shape& shape = mask->shape();
  const Dim one(1);
  Shape wide = {shape[0], one, one, one, shape.back()};
  if (shape.size() > 2) wide[3] = shape[shape.size() - 2];
  if (shape.size() == 4 && !(shape[1] == one)) {
    wide[1] = heads.kv;
    wide[2] = heads.query / heads.kv;
  }
  mask = call.b.reshape(mask, wide, call.scope + ".attention_mask");
  if (is_float(dtype)) return mask;
  Value* hidden = named_scalar(call.b, "minus_inf", -INFINITY);
  return call.b("where", {mask, named_scalar(call.b, "zero", 0.0), hidden}, {}, call.scope + ".additive_mask");
}

Value* causal_of(const ItemCall& call, const Value* q, const Value* k) {
  const int64_t window = call.item.attrs.integer("window");
  const bool causal = call.item.attrs.flag("causal");
  if (window < 0 || (window > 0 && !causal))
    call.fail("window " + text(window) + " needs causal=True, and to be positive");
  if (!causal) return nullptr;
  if (!(q->dim(1) == k->dim(1))) {
    call.fail("causal=True with " + q->dim(1).str() + " queries and " + k->dim(1).str() +
              " keys: which key a query stands at is not known; make it causal=False and give attention_mask");
  }
  Value* order = call.b("iota", {}, {{"shape", Shape{q->dim(1)}}}, call.scope + ".order");
  return causal_mask(call.b, order, order, window, call.scope + ".");
}

// Plugins see [B, heads, T, D], as the cache will hold it.
void plug_heads(const ItemCall& call, Value*& q, Value*& k, Value*& v) {
  if (!call.has_preprocess()) return;
  const auto swapped = [&](Value* x) { return call.b.transpose(x, {0, 2, 1, 3}); };
  const std::vector<Value*> plugged = call.preprocess({swapped(q), swapped(k), swapped(v)});
  q = swapped(plugged[0]);
  k = swapped(plugged[1]);
  v = swapped(plugged[2]);
}

void apply(const ItemCall& call, Flow& flow) {
  const Attrs& attrs = call.item.attrs;
  const Streams s = streams_of(call, flow);
  Value* q = to_heads(call, s.q, s.heads.query, s.heads.dim, "q");
  Value* k = to_heads(call, s.k, s.heads.kv, s.heads.dim, "k");
  Value* v = to_heads(call, s.v, s.heads.kv, s.heads.dim, "v");
  if (!(k->dim(1) == v->dim(1))) call.fail("key and value have different numbers of tokens");
  if (const Attrs* rotary = rotary_of(call, flow)) {
    const auto tables = rotary_tables(call, *rotary, q);
    const auto key_tables = k->dim(1) == q->dim(1) ? tables : rotary_tables(call, *rotary, k);
    q = rotate(call, *rotary, q, tables);
    k = rotate(call, *rotary, k, key_tables);
  }
  plug_heads(call, q, k, v);
  const double softcap = attrs.real("softcap"), given = attrs.real("scale");
  if (!std::isfinite(softcap) || softcap < 0 || !std::isfinite(given) || given < 0) {
    call.fail("scale and softcap must be finite and not negative (0: the default, and none)");
  }
  const double scale = given == 0 ? 1.0 / std::sqrt(static_cast<double>(s.heads.dim)) : given;
  PlainAttention options;
  options.scale = named_scalar(call.b, "scale", softcap > 0 ? scale / softcap : scale);
  if (softcap > 0) options.softcap = named_scalar(call.b, "softcap", softcap);
  options.mask = causal_of(call, q, k);
  options.second_mask = mask_of(call, s.heads, k->dim(1));
  if (options.mask == nullptr) std::swap(options.mask, options.second_mask);
  options.prefix = call.scope + ".";
  Value* out = plain_attention(call.b, q, k, v, options);
  if (attrs.flag("kv_cache")) call.emitter.result().cached.push_back({call.scope, s.heads.kv, s.heads.dim});
  flow = Flow{{out}};
}

}  // namespace

void register_item_flash_attention(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "flash_attention";
  def.doc =
      "softmax(q k^T * scale + mask) v by heads. q, k and v are slices of the linear before it, three values of a "
      "Branch, "
      "or, with a warning, the stream itself.";
  def.group = "attention";
  def.attrs = {{"num_heads", AttrKind::kInt, int64_t{0}, true, "query heads"},
               {"num_kv_heads", AttrKind::kInt, int64_t{0}, false, "key and value heads; 0: num_heads"},
               {"head_dim", AttrKind::kInt, int64_t{0}, false, "features of a head; 0: from the width"},
               {"causal", AttrKind::kBool, false, false, "a query sees no later key"},
               {"scale", AttrKind::kReal, 0.0, false, "factor of the scores; 0: 1 / sqrt(head_dim)"},
               {"window", AttrKind::kInt, int64_t{0}, false, "keys seen up to the query's own; 0: all"},
               {"softcap", AttrKind::kReal, 0.0, false, "soft bound of the scores; 0: none"},
               {"kv_cache", AttrKind::kBool, false, false, "keys and values of earlier calls are seen"}};
  def.max_inputs = 3;
  def.max_branches = 1;  // rope: a rotary embedding
  def.plugs_inputs = true;
  def.apply = apply;
  registry.add(std::move(def));
}

}  // namespace atb
