// SPDX-License-Identifier: Apache-2.0
// Normal forms that drop what changes nothing: x * 1, x + 0, x and true, a cast to x's own type.
#include "passes/analysis/scalar.h"
#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"

namespace atb {
namespace {

// Every value of `from` is one of `to`.
bool holds_exactly(DType from, DType to) {
  if (from == to) return true;
  switch (from) {
    case DType::kBool:
      return to != DType::kState;
    case DType::kI8:
    case DType::kU8:
      return to == DType::kI32 || to == DType::kI64 || is_float(to);
    case DType::kI32:
      return to == DType::kI64 || to == DType::kF64;
    case DType::kF16:
    case DType::kBF16:
      return to == DType::kF32 || to == DType::kF64;
    case DType::kF32:
      return to == DType::kF64;
    default:
      return false;
  }
}

}  // namespace

// Neither -0 + 0 = +0 is kept, nor is the type: pass_through compares types.
bool neutral_operand(const Node& node, Rewriter& rewriter) {
  const std::optional<WithScalar> parts = with_scalar(node);
  if (!parts || node.output()->type().dtype == DType::kBool) return false;
  const bool commutes = node.is("add") || node.is("mul");
  if (parts->scalar_first && !commutes) return false;
  const double neutral = node.is("mul") || node.is("div") ? 1 : 0;
  return parts->scalar == neutral && pass_through(node, parts->x, rewriter);
}

// A float's zero is not dropped by multiplication, so only bools have operands that decide alone.
bool neutral_bool(const Node& node, Rewriter& rewriter) {
  if (node.is("logical_not")) {
    const Node* inner = made_by(node.input(0), "logical_not");
    return inner != nullptr && pass_through(node, inner->input(0), rewriter);
  }
  if (node.input(0) == node.input(1)) return pass_through(node, node.input(0), rewriter);
  const std::optional<WithScalar> parts = with_scalar(node);
  const double neutral = node.is("logical_and") ? 1 : 0;
  return parts && parts->scalar == neutral && pass_through(node, parts->x, rewriter);
}

bool needless_cast(const Node& node, Rewriter& rewriter) {
  Value* x = node.input(0);
  if (pass_through(node, x, rewriter)) return true;
  const Node* inner = made_by(x, "cast");
  if (inner == nullptr || !holds_exactly(inner->input(0)->type().dtype, x->type().dtype)) return false;
  if (pass_through(node, inner->input(0), rewriter)) return true;
  return pass_through(node, rewriter.value("cast", {inner->input(0)}, node.attrs()), rewriter);
}

}  // namespace atb
