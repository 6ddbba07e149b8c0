// SPDX-License-Identifier: Apache-2.0
// Measuring layers, and the report as lines of text.
#include "passes/engine/report.h"

#include <algorithm>
#include <unordered_set>

#include "ir/op.h"

namespace atb {

namespace {

// What leaves the graph, also through views.
std::unordered_set<const Value*> leaving(const Graph& graph) {
  std::unordered_set<const Value*> values;
  for (const Value* value : graph.outputs()) {
    values.insert(value);
    while (value->producer() != nullptr && value->producer()->op().is_view()) {
      value = value->producer()->input(0);
      values.insert(value);
    }
  }
  return values;
}

Dim result_bytes(const Value& value) {
  const Type& type = value.type();
  return type.dtype == DType::kState ? Dim(0)
                                     : num_elements(type.shape) * Dim(static_cast<int64_t>(dtype_size(type.dtype)));
}

}  // namespace

LayerCost measure_layers(const Graph& graph) {
  LayerCost cost;
  const std::unordered_set<const Value*> outside = leaving(graph);
  const bool layered = std::any_of(graph.nodes().begin(), graph.nodes().end(), [](auto* n) { return n->layer() >= 0; });
  if (!layered) cost.layers = 1;
  for (const Node* node : graph.nodes()) {
    if (layered && node->layer() < 0) continue;
    cost.layers = std::max<int64_t>(cost.layers, node->layer() + 1);
    if (node->op().is_view()) continue;
    ++cost.kernels;
    cost.bytes = cost.bytes + node_bytes(*node);
    for (const Value* result : node->outputs()) {
      if (outside.count(result) == 0) cost.intermediates = cost.intermediates + result_bytes(*result);
    }
  }
  return cost;
}

const std::string& shown_op(const Node& node) {
  return node.is("external") ? node.attrs().text("target") : node.op_name();
}

LayerSketch sketch_layer(const Graph& graph) {
  constexpr size_t kMostNodes = 500;
  const int layers = static_cast<int>(measure_layers(graph).layers);
  LayerSketch sketch;
  const bool layered = std::any_of(graph.nodes().begin(), graph.nodes().end(), [](auto* n) { return n->layer() >= 0; });
  if (layered) sketch.layer = layers / 2;
  for (const Node* node : graph.nodes()) {
    if (node->layer() != sketch.layer || sketch.nodes.size() == kMostNodes) continue;
    SketchNode drawn{node->name(), shown_op(*node), {}, node_bytes(*node), node->op().is_view()};
    for (const Value* input : node->inputs()) {
      if (input == nullptr || input->is_constant() || input->type().dtype == DType::kState) continue;
      drawn.inputs.push_back(input->producer() == nullptr ? input->name() : input->producer()->name());
    }
    sketch.nodes.push_back(std::move(drawn));
  }
  return sketch;
}

std::string MatchReport::text() const {
  const auto line = [](const std::string& what, const LayerCost& cost) {
    return what + ": " + std::to_string(cost.kernels) + " kernels, " + cost.bytes.str() + " bytes in " +
           std::to_string(cost.layers) + " layers\n";
  };
  std::string out = line("before", before);
  for (const PatternResult& pattern : patterns) {
    out += line(pattern.name + " (" + std::to_string(pattern.matches) + " matches)", pattern.cost);
  }
  out += line("after", after);
  for (const MatchFailure& miss : misses) out += miss.str() + "\n";
  return out;
}

}  // namespace atb
