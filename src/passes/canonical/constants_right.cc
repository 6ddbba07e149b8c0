// SPDX-License-Identifier: Apache-2.0
// Normal form: the constant operand of a commutative operator comes second.
#include "passes/canonical/canonical.h"

namespace atb {

bool constants_right(const Node& node, Rewriter& rewriter) {
  if (!node.is("add") && !node.is("mul")) return false;
  if (!node.input(0)->is_constant() || node.input(1)->is_constant()) return false;
  // The result takes its type from the first float operand, so only operands of one type change places.
  if (node.input(0)->type().dtype != node.input(1)->type().dtype) return false;
  rewriter.replace(node.output(), rewriter.value(node.op_name(), {node.input(1), node.input(0)}));
  return true;
}

}  // namespace atb
