// SPDX-License-Identifier: Apache-2.0
// Linear.
#include "blocks/item.h"

namespace atb {

void register_item_linear(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "linear";
  def.doc = "x weight^T + bias; parameters weight [out_features, in] and bias [out_features].";
  def.group = "linear";
  def.attrs = {{"out_features", AttrKind::kInt, int64_t{0}, true, "1 or more"},
               {"bias", AttrKind::kBool, true, false, "has a bias"}};
  def.parameters = {{"weight"}, {"bias", "bias"}};
  def.apply = on_each_stream([](const ItemCall& call, Value* x) {
    return call.linear(x, call.item.attrs.integer("out_features"), call.item.attrs.flag("bias"));
  });
  registry.add(std::move(def));
}

}  // namespace atb
