// SPDX-License-Identifier: Apache-2.0
// Normal form: rows that are the same for all sequences are looked up once.
#include "passes/canonical/canonical.h"

namespace atb {

bool embedding_of_broadcast(const Node& node, Rewriter& rewriter) {
  const Node* broadcast = node.input(0)->producer();
  if (broadcast == nullptr || !broadcast->is("broadcast")) return false;
  Value* rows = rewriter.value("embedding", {broadcast->input(0), node.input(1)}, node.attrs());
  rewriter.replace(node.output(), rewriter.value("broadcast", {rows}, {{"shape", node.output()->shape()}}));
  return true;
}

}  // namespace atb
