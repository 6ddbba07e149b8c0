// SPDX-License-Identifier: Apache-2.0
// GatedMLP: the gated feed-forward of llama-like models.
#include "blocks/item.h"

namespace atb {
namespace {

Value* activate(const ItemCall& call, Value* x) {
  const std::string& name = call.item.attrs.text("activation");
  const std::string scope = call.scope + ".act";
  if (name == "silu" || name == "relu") return call.b(name, {x}, {}, scope);
  if (name == "gelu") return call.b("gelu", {x}, {{"approximate", std::string("none")}}, scope);
  if (name == "gelu_tanh") return call.b("gelu", {x}, {{"approximate", std::string("tanh")}}, scope);
  call.fail("activation \"" + name + "\" is none of silu, gelu, gelu_tanh, relu");
}

}  // namespace

void register_item_gated_mlp(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "gated_mlp";
  def.doc =
      "down_proj(activation(gate_proj(x)) * up_proj(x)), Shazeer 2020, arXiv:2002.05202; parameters of three linears.";
  def.group = "mlp";
  def.attrs = {{"hidden_features", AttrKind::kInt, int64_t{0}, true, "outputs of gate_proj and up_proj"},
               {"out_features", AttrKind::kInt, int64_t{0}, false, "outputs of down_proj; 0: as many as x has"},
               {"activation", AttrKind::kText, std::string("silu"), false, "silu, gelu, gelu_tanh or relu"},
               {"bias", AttrKind::kBool, false, false, "the linears have biases"}};
  def.parameters = {{"gate_proj.weight"},     {"gate_proj.bias", "bias"}, {"up_proj.weight"},
                    {"up_proj.bias", "bias"}, {"down_proj.weight"},       {"down_proj.bias", "bias"}};
  def.apply = on_each_stream([](const ItemCall& call, Value* x) {
    const Attrs& attrs = call.item.attrs;
    const bool bias = attrs.flag("bias");
    const int64_t hidden = attrs.integer("hidden_features"), out = attrs.integer("out_features");
    Value* gate = activate(call, call.linear(x, hidden, bias, "gate_proj"));
    Value* up = call.linear(x, hidden, bias, "up_proj");
    Value* gated = call.b("mul", {gate, up}, {}, call.scope + ".gated");
    return call.linear(gated, out == 0 ? call.width(x) : out, bias, "down_proj");
  });
  registry.add(std::move(def));
}

}  // namespace atb
