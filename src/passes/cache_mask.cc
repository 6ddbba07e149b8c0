// SPDX-License-Identifier: Apache-2.0
// Builds a mask again from what it was cut from.
#include "passes/cache_mask.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace atb {
namespace {

bool same(const Dim& a, const Dim& b) { return equal(a, b) == Tri::kYes; }

bool has_keys(const Value& x, const Dim& tokens) { return x.rank() > 0 && same(x.dim(-1), tokens); }

// Each key's number comes from those of the same key.
bool is_elementwise(const Node& node) {
  constexpr std::string_view kNames[] = {"where", "logical_and", "logical_or", "logical_not", "cast", "add",
                                         "sub",   "mul",         "less",       "less_equal",  "equal"};
  return std::find(std::begin(kNames), std::end(kNames), node.op_name()) != std::end(kNames);
}

// x[..., S - tokens:] of its input [..., S].
bool is_tail(const Node& node, const Dim& tokens) {
  if (!node.is("slice") || node.attrs().integer("step") != 1) return false;
  const Value* from = node.input(0);
  const int64_t axis = node.attrs().integer("axis");
  const Shape& bounds = node.attrs().get<Shape>("bounds");
  return (axis == -1 || axis + 1 == from->rank()) && same(bounds[1], from->dim(-1)) &&
         same(bounds[0], from->dim(-1) - tokens);
}

class Widener {
 public:
  Widener(Rewriter& rewriter, const Dim& tokens) : rewriter_(rewriter), tokens_(tokens) {}

  // `x` [..., tokens] over all keys; null where that is not known.
  Value* widen(Value* x) {
    const Node* node = x->producer();
    if (node == nullptr) return x->is_constant() ? nullptr : x;
    if (is_tail(*node, tokens_)) return node->input(0);
    if (node->is("reshape")) return reshape(*node);
    if (node->is("broadcast")) return broadcast(*node);
    return is_elementwise(*node) ? elementwise(*node) : nullptr;
  }

 private:
  Value* reshape(const Node& node) {
    Value* from = has_keys(*node.input(0), tokens_) ? widen(node.input(0)) : nullptr;
    return from == nullptr ? nullptr : rewriter_.reshape(from, widened(node.output()->shape(), from));
  }

  Value* broadcast(const Node& node) {
    Value* from = has_keys(*node.input(0), tokens_) ? widen(node.input(0)) : nullptr;
    if (from == nullptr) return nullptr;
    return rewriter_.value("broadcast", {from}, {{"shape", widened(node.output()->shape(), from)}});
  }

  // Operands that have no axis of keys stay as they are. With one token, an axis of keys looks like one that has none.
  Value* elementwise(const Node& node) {
    std::vector<Value*> operands = node.inputs();
    std::optional<Dim> keys;
    for (Value*& operand : operands) {
      if (!has_keys(*operand, tokens_)) {
        if (operand->rank() > 0 && !(operand->dim(-1) == Dim(1))) return nullptr;
        continue;
      }
      Value* wide = widen(operand);
      if (wide == nullptr && !(tokens_ == Dim(1))) return nullptr;
      if (wide == nullptr) continue;
      if (keys && !same(*keys, wide->dim(-1))) return nullptr;
      keys = wide->dim(-1);
      operand = wide;
    }
    return keys ? rewriter_.value(node.op_name(), std::move(operands), node.attrs()) : nullptr;
  }

  static Shape widened(Shape shape, const Value* from) {
    shape.back() = from->dim(-1);
    return shape;
  }

  Rewriter& rewriter_;
  const Dim& tokens_;
};

}  // namespace

Value* mask_over_cache(Rewriter& rewriter, Value* mask, const Dim& tokens) {
  Value* wide = has_keys(*mask, tokens) ? Widener(rewriter, tokens).widen(mask) : nullptr;
  if (wide == nullptr || wide->rank() > 4) return nullptr;
  Shape shape = wide->shape();
  shape.insert(shape.begin(), 4 - shape.size(), Dim(1));
  return rewriter.reshape(wide, shape);
}

}  // namespace atb
