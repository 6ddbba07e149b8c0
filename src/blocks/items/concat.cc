// SPDX-License-Identifier: Apache-2.0
// Concat.
#include <limits>

#include "blocks/item.h"

namespace atb {

void register_item_concat(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "concat";
  def.doc = "The values of the item before side by side along an axis.";
  def.attrs = {{"axis", AttrKind::kInt, int64_t{-1}, false, "-1: features; 1 or -2: tokens"}};
  def.min_inputs = 2;
  def.max_inputs = std::numeric_limits<size_t>::max();
  def.apply = on_primary_stream([](const ItemCall& call, Flow& flow) {
    const int64_t axis = call.item.attrs.integer("axis"), rank = flow.single()->rank();
    if (axis < -rank || axis >= rank)
      call.fail("axis " + std::to_string(axis) + " of " + std::to_string(rank) + " axes");
    flow.values = {call.b("concat", flow.values, {{"axis", axis}}, call.scope)};
  });
  registry.add(std::move(def));
}

}  // namespace atb
