// SPDX-License-Identifier: Apache-2.0
// Dropout: nothing, since blocks are for inference. Whoever runs a block refuses one that is live.
#include "blocks/item.h"

namespace atb {

void register_item_dropout(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "dropout";
  def.doc = "x; live dropout, in training, is refused.";
  def.attrs = {{"p", AttrKind::kReal, 0.5, false, "share of zeros in training"}};
  def.apply = on_each_stream([](const ItemCall&, Value* x) { return x; });
  registry.add(std::move(def));
}

}  // namespace atb
