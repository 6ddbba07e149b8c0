// SPDX-License-Identifier: Apache-2.0
// Embedding.
#include "blocks/item.h"

namespace atb {

void register_item_embedding(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "embedding";
  def.doc = "The row of weight [num_embeddings, embedding_dim] of each id.";
  def.attrs = {{"num_embeddings", AttrKind::kInt, int64_t{0}, true, "ids are below it"},
               {"embedding_dim", AttrKind::kInt, int64_t{0}, true, "features of a row"}};
  def.parameters = {{"weight"}};
  def.apply = on_each_stream([](const ItemCall& call, Value* x) {
    const int64_t rows = call.item.attrs.integer("num_embeddings"), width = call.item.attrs.integer("embedding_dim");
    if (rows < 1 || width < 1) call.fail("num_embeddings and embedding_dim must be 1 or more");
    const DType dtype = x->type().dtype;
    if (dtype != DType::kI32 && dtype != DType::kI64) {
      call.fail("reads " + x->type().str() + "; expected token ids, i32 or i64");
    }
    Value* table = call.parameter("weight", {rows, width}, {ParameterInit::Kind::kNormal});
    return call.b("embedding", {x, table}, {}, call.scope);
  });
  registry.add(std::move(def));
}

}  // namespace atb
