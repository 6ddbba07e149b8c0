// SPDX-License-Identifier: Apache-2.0
// Custom: an operator of ATB by name, a kernel of a loaded library, or a callable of the host program.
#include <limits>

#include "blocks/item.h"

namespace atb {
namespace {

// Attributes of the operator: those that are not the item's own.
Attrs operator_attrs(const ItemCall& call, const OpDef& op) {
  Attrs attrs;
  for (const AttrSpec& spec : op.attrs) {
    const auto it = call.item.attrs.items().find(spec.name);
    if (it != call.item.attrs.items().end()) attrs.set(spec.name, it->second);
  }
  return attrs;
}

// What a kernel gives: types as written, else one value like the first input with so many features.
std::string types_of(const ItemCall& call, const std::vector<Value*>& inputs) {
  const std::string& types = call.item.attrs.text("types");
  if (!types.empty()) return types;
  std::string result;
  std::vector<int64_t> widths = call.item.attrs.get<std::vector<int64_t>>("out_features");
  if (widths.empty()) widths = {0};
  for (const int64_t width : widths) {
    Type type = inputs[0]->type();
    if (width < 0) call.fail("out_features " + std::to_string(width) + " must not be negative");
    if (width > 0) type.shape.back() = width;
    result += (result.empty() ? "" : ", ") + type.str();
  }
  return result;
}

}  // namespace

void register_item_custom(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "custom";
  def.doc = "target(x...): an operator of ATB with its attributes, or a kernel known by that name.";
  def.attrs = {{"target", AttrKind::kText, std::string(), true, "name of an operator or kernel"},
               {"kernel", AttrKind::kText, std::string(), false, "name of the kernel, where it is another one"},
               {"types", AttrKind::kText, std::string(), false, "what a kernel gives, as \"f32[B, T, 8]\""},
               {"out_features", AttrKind::kInts, std::vector<int64_t>{}, false, "features of each result; 0: as x"}};
  def.max_inputs = std::numeric_limits<size_t>::max();
  def.apply = on_primary_stream([](const ItemCall& call, Flow& flow) {
    const std::string& target = call.item.attrs.text("target");
    const std::string& kernel = call.item.attrs.text("kernel");
    const OpDef* op = kernel.empty() ? OpRegistry::instance().find(target) : nullptr;
    if (op != nullptr && (op->fused || op->has_state)) call.fail(target + " is made by patterns only");
    const Node* node = op != nullptr ? call.b.node(target, flow.values, operator_attrs(call, *op), call.scope)
                                     : call.b.node("external", flow.values,
                                                   {{"target", target},
                                                    {"kernel", kernel.empty() ? target : kernel},
                                                    {"types", types_of(call, flow.values)}},
                                                   call.scope);
    flow.values = node->outputs();
  });
  registry.add(std::move(def));
}

}  // namespace atb
