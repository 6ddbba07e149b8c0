// SPDX-License-Identifier: Apache-2.0
// ReLU.
#include "blocks/item.h"

namespace atb {

void register_item_relu(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "relu";
  def.doc = "max(x, 0).";
  def.group = "activation";
  def.apply = on_each_stream([](const ItemCall& call, Value* x) { return call.b("relu", {x}, {}, call.scope); });
  registry.add(std::move(def));
}

}  // namespace atb
