// SPDX-License-Identifier: Apache-2.0
// Softmax.
#include "blocks/item.h"

namespace atb {

void register_item_softmax(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "softmax";
  def.doc = "exp(x - max) / sum of that, over the last axis.";
  def.group = "activation";
  def.apply = on_each_stream([](const ItemCall& call, Value* x) { return call.b("softmax", {x}, {}, call.scope); });
  registry.add(std::move(def));
}

}  // namespace atb
