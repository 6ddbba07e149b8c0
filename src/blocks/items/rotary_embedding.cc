// SPDX-License-Identifier: Apache-2.0
// RotaryEmbedding: of the queries and keys of the attention that follows, or of a stream cut into heads.
#include "blocks/items/rotary_util.h"

namespace atb {
namespace {

Value* rotate_stream(const ItemCall& call, Value* x) {
  const int64_t width = call.width(x), head_dim = call.item.attrs.integer("head_dim");
  if (head_dim < 1 || width % head_dim != 0) {
    call.fail("no attention follows, and head_dim " + std::to_string(head_dim) + " does not divide the " +
              std::to_string(width) + " features of x; give head_dim, or put it before FlashAttention");
  }
  Value* heads = call.b.reshape(x, {x->dim(0), x->dim(1), width / head_dim, head_dim});
  Value* rotated = rotate(call, call.item.attrs, heads, rotary_tables(call, call.item.attrs, heads));
  return call.b.reshape(rotated, x->shape());
}

}  // namespace

void register_item_rotary_embedding(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "rotary_embedding";
  def.doc =
      "Rotary position embedding, Su et al. 2021, arXiv:2104.09864: before FlashAttention of its queries and keys, "
      "elsewhere of each head of x.";
  def.attrs = rotary_attrs();
  def.attrs.push_back({"head_dim", AttrKind::kInt, int64_t{0}, false, "features of a head, where no attention says"});
  def.max_inputs = 3;
  def.apply = [](const ItemCall& call, Flow& flow) {
    if (rotates_in_attention(call.list, call.index)) {
      flow.rotary = &call.item;
    } else if (flow.values.size() != 1) {
      call.fail("is given " + std::to_string(flow.values.size()) + " values, and no attention follows");
    } else {
      on_each_stream(rotate_stream)(call, flow);
    }
  };
  registry.add(std::move(def));
}

}  // namespace atb
