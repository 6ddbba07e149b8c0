// SPDX-License-Identifier: Apache-2.0
// Normal form: one reshape where there were several in a row.
#include "passes/canonical/canonical.h"

namespace atb {

bool reshape_of_reshape(const Node& node, Rewriter& rewriter) {
  if (!node.is("reshape")) return false;
  const Node* inner = node.input(0)->producer();
  if (inner == nullptr || !inner->is("reshape")) return false;
  rewriter.replace(node.output(), rewriter.reshape(inner->input(0), node.output()->shape()));
  return true;
}

}  // namespace atb
