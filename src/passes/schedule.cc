// SPDX-License-Identifier: Apache-2.0
#include "passes/schedule.h"

#include <algorithm>
#include <unordered_map>

#include "ir/op.h"

namespace atb {
namespace {

// Stage of every node. A value is ready one stage after the node that makes it; an aliasing view takes no stage of its
// own.
std::unordered_map<const Node*, int> stage_of_nodes(const Graph& graph) {
  std::unordered_map<const Node*, int> stage;
  std::unordered_map<const Node*, int> ready;  // of a node's outputs
  for (const Node* node : graph.nodes()) {
    int operands_ready = 0;
    for (const Value* input : node->inputs()) {
      if (input != nullptr && input->producer() != nullptr) {
        operands_ready = std::max(operands_ready, ready.at(input->producer()));
      }
    }
    const bool view = aliases_input(*node);
    stage[node] = view ? std::max(operands_ready - 1, 0) : operands_ready;
    ready[node] = view ? operands_ready : operands_ready + 1;
  }
  return stage;
}

Schedule one_by_one(const Graph& graph) {
  Schedule result;
  for (Node* node : graph.nodes()) {
    if (!aliases_input(*node)) result.stages.push_back({node});
  }
  return result;
}

}  // namespace

int64_t Schedule::num_nodes() const {
  int64_t count = 0;
  for (const auto& stage : stages) count += static_cast<int64_t>(stage.size());
  return count;
}

bool is_dense(const Value& value) {
  const Node* producer = value.producer();
  if (producer == nullptr || !producer->op().is_view()) return true;
  return !producer->is("transpose");
}

bool aliases_input(const Node& view) {
  if (!view.op().is_view()) return false;
  return !view.is("reshape") || is_dense(*view.input(0));
}

Schedule schedule(const Graph& graph, bool side_by_side) {
  if (!side_by_side) return one_by_one(graph);
  const auto stage = stage_of_nodes(graph);
  Schedule result;
  for (Node* node : graph.nodes()) {
    if (aliases_input(*node)) continue;
    const size_t index = static_cast<size_t>(stage.at(node));
    if (result.stages.size() <= index) result.stages.resize(index + 1);
    result.stages[index].push_back(node);
  }
  std::erase_if(result.stages, [](const auto& nodes) { return nodes.empty(); });
  return result;
}

void apply_schedule(Graph& graph) {
  const auto stage = stage_of_nodes(graph);
  std::vector<Node*> order = graph.nodes();
  std::stable_sort(order.begin(), order.end(), [&](const Node* a, const Node* b) { return stage.at(a) < stage.at(b); });
  graph.set_order(std::move(order));
}

}  // namespace atb
