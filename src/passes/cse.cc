// SPDX-License-Identifier: Apache-2.0
// Common subexpressions, one sweep in execution order: inputs are canonical by the time their readers are seen.
#include "passes/cse.h"

#include <map>

#include "ir/op.h"
#include "passes/analysis/scalar.h"
#include "passes/engine/rewriter.h"

namespace atb {
namespace {

// Constants of equal bytes of one element count as one, so that each `scalar(0.5)` of a front door is the same.
std::string key_of(const Value* value) {
  if (value == nullptr) return "-";
  if (value->constant() != nullptr && value->constant()->shape().empty() && !value->constant()->absent()) {
    const std::byte* bytes = value->constant()->row(0);
    return value->type().str() + std::string(reinterpret_cast<const char*>(bytes), value->constant()->num_bytes());
  }
  return std::to_string(reinterpret_cast<uintptr_t>(value));
}

std::vector<std::string> key_of(const Node& node) {
  std::vector<std::string> key = {node.op_name()};
  for (const Value* input : node.inputs()) key.push_back(key_of(input));
  return key;
}

}  // namespace

int64_t eliminate_common_subexpressions(Graph& graph) {
  std::map<std::vector<std::string>, std::vector<Node*>> seen;
  int64_t removed = 0;
  for (Node* node : std::vector<Node*>(graph.nodes())) {
    if (node->op().has_state || node->is("external")) continue;  // code that we do not know may draw numbers
    std::vector<Node*>& alike = seen[key_of(*node)];
    Node* first = nullptr;
    for (Node* candidate : alike) {
      if (candidate->attrs() == node->attrs()) first = candidate;
    }
    if (first == nullptr) {
      alike.push_back(node);
      continue;
    }
    Rewriter rewriter(graph, node);
    for (size_t i = 0; i < node->outputs().size(); ++i) rewriter.replace(node->output(i), first->output(i));
    rewriter.retire({node});
    const int layer = node->layer();
    if (rewriter.commit()) continue;
    if (first->layer() != layer) first->set_layer(-1);
    ++removed;
  }
  return removed;
}

}  // namespace atb
