// SPDX-License-Identifier: Apache-2.0
// Branch.
#include <limits>

#include "blocks/emitter.h"

namespace atb {

void register_item_branch(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "branch";
  def.doc = "Lists of items that all read x; their results go to the next item, which must take that many.";
  def.min_branches = 2;
  def.max_branches = std::numeric_limits<size_t>::max();
  def.apply = [](const ItemCall& call, Flow& flow) {
    ListScope& outer = call.emitter.scope();
    std::vector<Value*> results;
    for (size_t i = 0; i < call.item.branches.size(); ++i) {
      Flow own = flow;
      ListScope scope = outer;  // sees the results around it
      scope.prefix = outer.prefix.branch(call.path, i);
      call.emitter.run(call.item.branches[i], own, scope);
      if (own.values.size() != 1) {
        call.fail("list " + std::to_string(i) + " ends with " + std::to_string(own.values.size()) + " values");
      }
      if (own.separate()) call.fail("list " + std::to_string(i) + " has no attention for key and value");
      results.push_back(own.single());
    }
    flow = Flow{results};
  };
  registry.add(std::move(def));
}

}  // namespace atb
