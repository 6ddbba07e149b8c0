// SPDX-License-Identifier: Apache-2.0
// ResidualAdd.
#include "blocks/emitter.h"
#include "blocks/items/join_util.h"

namespace atb {

void register_item_residual_add(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "residual_add";
  def.doc =
      "source + x. \"input\" is the residual of the call, else its first argument; without a source it is \"input\" "
      "for "
      "the first such item of a list, and the result of the one before for the others.";
  def.group = "residual";
  def.attrs = {{"source", AttrKind::kText, std::string(), false, "input, or an earlier item's name"}};
  def.plugs_inputs = true;  // the residual is one of them
  def.apply = on_primary_stream([](const ItemCall& call, Flow& flow) {
    const std::string& source = call.item.attrs.text("source");
    Value* before = call.emitter.scope().last_residual;
    Value* residual = source.empty() && before != nullptr ? before : call.source(source.empty() ? "input" : source);
    if (equal(residual->shape(), flow.single()->shape()) == Tri::kNo) {
      const std::string what = !source.empty()     ? "\"" + source + "\""
                               : before != nullptr ? "the residual sum before it"
                                                   : "\"input\"";
      call.fail("adds " + what + ", " + residual->type().str() + ", to what the item before gives, " +
                flow.single()->type().str() + "; expected one shape");
    }
    const std::vector<Value*> inputs = call.preprocess({flow.single(), residual});
    flow.values = {join(call, "add", inputs[1], inputs[0])};
  });
  registry.add(std::move(def));
}

}  // namespace atb
