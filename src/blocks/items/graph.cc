// SPDX-License-Identifier: Apache-2.0
// A block inside a block.
#include "blocks/emitter.h"

namespace atb {

void register_item_graph(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "graph";
  def.doc = "The items of another block; \"input\" means what comes into it.";
  def.min_branches = 1;
  def.max_branches = 1;
  def.apply = [](const ItemCall& call, Flow& flow) {
    ListScope scope;
    scope.prefix = ItemPrefix::nested(call.path);
    scope.input = flow.single();
    call.emitter.run(call.item.branches[0], flow, scope);
  };
  registry.add(std::move(def));
}

}  // namespace atb
