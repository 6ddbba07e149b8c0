// SPDX-License-Identifier: Apache-2.0
// What an item is: its attributes and how it continues the graph. One file each in src/blocks/items, registered by
// `void register_item_<file>(ItemRegistry&)`.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "blocks/block.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace atb {

class Emitter;

// What goes from one item to the next: one value, or several from Branch and Split. Up to the first attention, keys and
// values may be streams of their own, which the same items go over.
struct Flow {
  std::vector<Value*> values;         // the primary stream
  Value* key = nullptr;               // null: the primary stream is that of keys and values too
  Value* value = nullptr;             // null exactly if key is
  const BlockItem* rotary = nullptr;  // a rotary embedding that waits for the attention

  bool separate() const { return key != nullptr; }
  Value* single() const { return values[0]; }
};

// The prefixes of parameters that a list of items gives them.
struct ItemPrefix {
  std::string named;    // of items with a name: "" or "2."
  std::string indexed;  // of those without

  std::string path(const BlockItem& item, size_t index) const;   // "2.qkv_proj"
  std::string scope(const BlockItem& item, size_t index) const;  // what its nodes are known by: its name, or the path
  ItemPrefix branch(const std::string& path, size_t list) const;
  static ItemPrefix nested(const std::string& path) { return {path + ".", path + "."}; }
};

// An item's place in a list that is being emitted.
struct ItemCall {
  Emitter& emitter;
  Builder& b;
  const std::vector<BlockItem>& list;
  size_t index;
  const BlockItem& item;
  std::string path;   // prefix of its parameters, without the dot
  std::string scope;  // what its nodes are known by: see ItemPrefix

  // [kind] scope: <what>, kInvalidArgument.
  [[noreturn]] void fail(const std::string& what) const;
  // Extent of the last axis, which must be a number.
  int64_t width(const Value* x) const;
  // The parameter `path`.`suffix`, made at the first call. Fails where it has another shape already.
  Value* parameter(const std::string& suffix, std::vector<int64_t> shape, ParameterInit init) const;
  // weight [out, in] (and bias [out]) on x, under `path` or, with a suffix, `path`.`suffix`.
  Value* linear(Value* x, int64_t out, bool bias, const std::string& suffix = {}) const;
  // What "input" (residual, else the block's first argument) or an earlier item's name stands for.
  Value* source(const std::string& name) const;
  // What plugins before this item make of its inputs. Items with `plugs_inputs` call it once, the emitter for others.
  std::vector<Value*> preprocess(std::vector<Value*> inputs) const;
  bool has_preprocess() const;
  // Positions [T] or [B, T] of the tokens of `x`, whose axis 1 they are.
  Value* positions(const Value* x) const;
};

// A parameter that an item has, or has where an attribute is true.
struct ItemParameter {
  std::string suffix;  // "weight"
  std::string flag{};  // "bias"; empty: always
};

struct ItemDef {
  std::string kind;   // "layer_norm"
  std::string doc;    // what it computes
  std::string group;  // "norm", "linear", "attention", "activation", "mlp", "residual", or "" for others
  std::vector<AttrSpec> attrs{};
  std::vector<ItemParameter> parameters{};
  size_t min_inputs = 1;
  size_t max_inputs = 1;
  size_t min_branches = 0;
  size_t max_branches = 0;
  bool plugs_inputs = false;  // its inputs are not the flow as it comes: apply() gives them to preprocess()
  std::function<void(const ItemCall&, Flow&)> apply;
};

// The attributes that an item may have: its kind's, and those of the operator `target` for a custom item that is one.
std::vector<AttrSpec> attrs_of_item(const ItemDef& def, std::string_view target);

// An `apply` that does the same to the primary stream and to those of keys and values.
std::function<void(const ItemCall&, Flow&)> on_each_stream(std::function<Value*(const ItemCall&, Value*)> function);
// An `apply` for items that join or replace the stream: kInvalidArgument where keys or values are streams of their own.
std::function<void(const ItemCall&, Flow&)> on_primary_stream(std::function<void(const ItemCall&, Flow&)> function);

// All items of this build. Filled once by generated code.
class ItemRegistry {
 public:
  void add(ItemDef item);                           // kInternal on a duplicate kind
  const ItemDef& get(std::string_view kind) const;  // kInvalidArgument, listing what there is
  const std::vector<ItemDef>& all() const { return items_; }
  static const ItemRegistry& instance();

 private:
  std::vector<ItemDef> items_;
};

}  // namespace atb
