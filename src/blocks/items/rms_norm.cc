// SPDX-License-Identifier: Apache-2.0
// RMSNorm.
#include "blocks/item.h"

namespace atb {

void register_item_rms_norm(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "rms_norm";
  def.doc = "x / sqrt(mean(x^2) + eps) * weight over the last axis; parameter weight.";
  def.group = "norm";
  def.attrs = {{"eps", AttrKind::kReal, 1e-6, false, "added to the mean of squares"}};
  def.parameters = {{"weight"}};
  def.apply = on_each_stream([](const ItemCall& call, Value* x) {
    Value* weight = call.parameter("weight", {call.width(x)}, {ParameterInit::Kind::kOnes});
    return call.b("rms_norm", {x, weight}, {{"eps", call.item.attrs.real("eps")}}, call.scope);
  });
  registry.add(std::move(def));
}

}  // namespace atb
