// SPDX-License-Identifier: Apache-2.0
// SiLU.
#include "blocks/item.h"

namespace atb {

void register_item_silu(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "silu";
  def.doc = "x / (1 + exp(-x)).";
  def.group = "activation";
  def.apply = on_each_stream([](const ItemCall& call, Value* x) { return call.b("silu", {x}, {}, call.scope); });
  registry.add(std::move(def));
}

}  // namespace atb
