// SPDX-License-Identifier: Apache-2.0
// Normal forms of the indices of embedding: as they were before they were repeated for each sequence, or widened.
#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"

namespace atb {

bool embedding_of_broadcast(const Node& node, Rewriter& rewriter) {
  const Node* broadcast = made_by(node.input(0), "broadcast");
  if (broadcast == nullptr) return false;
  Value* rows = rewriter.value("embedding", {broadcast->input(0), node.input(1)}, node.attrs());
  rewriter.replace(node.output(), rewriter.value("broadcast", {rows}, {{"shape", node.output()->shape()}}));
  return true;
}

bool embedding_of_widened(const Node& node, Rewriter& rewriter) {
  Value* indices = node.input(0);
  const Node* view = made_by(indices, "reshape");
  const Node* cast = made_by(view != nullptr ? view->input(0) : indices, "cast");
  if (cast == nullptr || cast->input(0)->type().dtype != DType::kI32) return false;
  Value* narrow = rewriter.reshape(cast->input(0), indices->shape());
  rewriter.replace(node.output(), rewriter.value("embedding", {narrow, node.input(1)}, node.attrs()));
  return true;
}

}  // namespace atb
