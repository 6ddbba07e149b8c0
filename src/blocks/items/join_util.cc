// SPDX-License-Identifier: Apache-2.0
// Items that join values elementwise.
#include "blocks/items/join_util.h"

#include <limits>

namespace atb {

Value* join(const ItemCall& call, const std::string& op, Value* a, Value* b) {
  if (!is_float(a->type().dtype) || !is_float(b->type().dtype) || equal(a->shape(), b->shape()) != Tri::kYes) {
    call.fail("is given " + a->type().str() + " and " + b->type().str() + "; expected floats of one shape");
  }
  return call.b(op, {a, b}, {}, call.scope);
}

void register_join(ItemRegistry& registry, const std::string& op, const std::string& result) {
  ItemDef def;
  def.kind = op;
  def.doc = result + " of the values of the item before, and of the result that source names.";
  def.attrs = {{"source", AttrKind::kText, std::string(), false, "input, or an earlier item's name"}};
  def.max_inputs = std::numeric_limits<size_t>::max();
  def.plugs_inputs = true;  // the source is one of them
  def.apply = on_primary_stream([op](const ItemCall& call, Flow& flow) {
    const std::string& source = call.item.attrs.text("source");
    if (!source.empty()) flow.values.push_back(call.source(source));
    if (flow.values.size() < 2) call.fail("has one value to join; put it after a Branch, or give source");
    flow.values = call.preprocess(std::move(flow.values));
    Value* joined = flow.values[0];
    for (size_t i = 1; i < flow.values.size(); ++i) joined = join(call, op, joined, flow.values[i]);
    flow.values = {joined};
  });
  registry.add(std::move(def));
}

}  // namespace atb
