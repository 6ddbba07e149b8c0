// SPDX-License-Identifier: Apache-2.0
// LayerNorm.
#include "blocks/item.h"

namespace atb {

void register_item_layer_norm(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "layer_norm";
  def.doc = "(x - mean) / sqrt(variance + eps) * weight + bias over the last axis; parameters weight and bias.";
  def.group = "norm";
  def.attrs = {{"eps", AttrKind::kReal, 1e-5, false, "added to the variance"},
               {"bias", AttrKind::kBool, true, false, "has a bias"}};
  def.parameters = {{"weight"}, {"bias", "bias"}};
  def.apply = on_each_stream([](const ItemCall& call, Value* x) {
    const int64_t width = call.width(x);
    std::vector<Value*> inputs = {x, call.parameter("weight", {width}, {ParameterInit::Kind::kOnes})};
    if (call.item.attrs.flag("bias")) {
      inputs.push_back(call.parameter("bias", {width}, {ParameterInit::Kind::kZeros}));
    }
    return call.b("layer_norm", std::move(inputs), {{"eps", call.item.attrs.real("eps")}}, call.scope);
  });
  registry.add(std::move(def));
}

}  // namespace atb
