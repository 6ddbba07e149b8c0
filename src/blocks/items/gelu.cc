// SPDX-License-Identifier: Apache-2.0
// GELU.
#include "blocks/item.h"

namespace atb {

void register_item_gelu(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "gelu";
  def.doc = "x times the normal distribution function of x, or its approximation by tanh.";
  def.group = "activation";
  def.attrs = {{"approximate", AttrKind::kText, std::string("none"), false, "none or tanh"}};
  def.apply = on_each_stream([](const ItemCall& call, Value* x) {
    return call.b("gelu", {x}, {{"approximate", call.item.attrs.text("approximate")}}, call.scope);
  });
  registry.add(std::move(def));
}

}  // namespace atb
