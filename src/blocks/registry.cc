// SPDX-License-Identifier: Apache-2.0
// The registry of items.
#include <algorithm>

#include "blocks/item.h"
#include "core/error.h"

namespace atb {

void register_all_items(ItemRegistry& registry);  // generated

void ItemRegistry::add(ItemDef item) {
  const bool known = std::any_of(items_.begin(), items_.end(), [&](const ItemDef& i) { return i.kind == item.kind; });
  require(!known && item.apply, Code::kInternal, "[GraphOp] item ", item.kind, " is registered twice, or incomplete");
  items_.push_back(std::move(item));
}

const ItemDef& ItemRegistry::get(std::string_view kind) const {
  std::string kinds;
  for (const ItemDef& item : items_) {
    if (item.kind == kind) return item;
    kinds += (kinds.empty() ? "" : ", ") + item.kind;
  }
  throw_error(Code::kInvalidArgument, "[GraphOp] there is no item \"", kind, "\"; items are ", kinds);
}

const ItemRegistry& ItemRegistry::instance() {
  static const ItemRegistry* registry = [] {
    auto* made = new ItemRegistry();
    register_all_items(*made);
    return made;
  }();
  return *registry;
}

std::string ItemPrefix::path(const BlockItem& item, size_t index) const {
  return item.name.empty() || is_call_name(item.name) ? indexed + std::to_string(index) : named + item.name;
}

std::string ItemPrefix::scope(const BlockItem& item, size_t index) const {
  return item.name.empty() ? path(item, index) : named + item.name;
}

ItemPrefix ItemPrefix::branch(const std::string& path, size_t list) const {
  return {named, path + "." + std::to_string(list) + "."};
}

std::vector<AttrSpec> attrs_of_item(const ItemDef& def, std::string_view target) {
  std::vector<AttrSpec> specs = def.attrs;
  const OpDef* op = def.kind == "custom" ? OpRegistry::instance().find(target) : nullptr;
  if (op == nullptr) return specs;
  for (AttrSpec spec : op->attrs) {
    spec.required = false;  // the operator itself asks for what it needs
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::function<void(const ItemCall&, Flow&)> on_each_stream(std::function<Value*(const ItemCall&, Value*)> function) {
  return [function = std::move(function)](const ItemCall& call, Flow& flow) {
    Value* x = flow.single();
    flow.values[0] = function(call, x);
    if (!flow.separate()) return;
    flow.key = flow.key == x ? flow.single() : function(call, flow.key);
    flow.value = flow.value == x ? flow.single() : function(call, flow.value);
  };
}

std::function<void(const ItemCall&, Flow&)> on_primary_stream(std::function<void(const ItemCall&, Flow&)> function) {
  return [function = std::move(function)](const ItemCall& call, Flow& flow) {
    if (flow.separate()) {
      call.fail("stands before the attention that reads key and value, and does not go over three streams");
    }
    function(call, flow);
  };
}

}  // namespace atb
