// SPDX-License-Identifier: Apache-2.0
#include "fuzz/random_graphs/shrink.h"

#include <algorithm>

#include "passes/dce.h"

namespace atb::random_graphs {
namespace {

using Fails = std::function<bool(const Graph&, const Inputs&)>;

void set_outputs(Graph& graph, const std::vector<Value*>& outputs) {
  std::vector<std::string> names;
  for (size_t i = 0; i < outputs.size(); ++i) names.push_back("out" + std::to_string(i));
  graph.set_outputs(outputs, names);
  eliminate_dead_code(graph);
}

// Inputs that nothing reads go too, but for the first, which gives the symbols their values.
void drop_unread_inputs(Graph& graph, Inputs& inputs) {
  for (Value* input : std::vector<Value*>(graph.inputs())) {
    if (input == graph.inputs().front() || !input->uses().empty() || graph.is_output(input)) continue;
    inputs.erase(input->name());
    graph.erase_input(input);
  }
}

// Keeps a smaller graph that fails.
bool keep(Shrunk& now, std::unique_ptr<Graph> graph, Inputs inputs, const Fails& fails) {
  drop_unread_inputs(*graph, inputs);
  if (!fails(*graph, inputs)) return false;
  now.graph = std::move(graph);
  now.inputs = std::move(inputs);
  return true;
}

bool with_fewer_outputs(Shrunk& now, const Fails& fails) {
  for (size_t i = 0; now.graph->outputs().size() > 1 && i < now.graph->outputs().size(); ++i) {
    std::unique_ptr<Graph> graph = now.graph->clone();
    std::vector<Value*> outputs = graph->outputs();
    outputs.erase(outputs.begin() + static_cast<int64_t>(i));
    set_outputs(*graph, outputs);
    if (keep(now, std::move(graph), now.inputs, fails)) return true;
  }
  return false;
}

// An output gives way to what its node read.
bool without_a_last_node(Shrunk& now, const Fails& fails) {
  for (size_t i = 0; i < now.graph->outputs().size(); ++i) {
    std::unique_ptr<Graph> graph = now.graph->clone();
    std::vector<Value*> outputs = graph->outputs();
    const Node* node = outputs[i]->producer();
    if (node == nullptr || !outputs[i]->uses().empty()) continue;
    outputs.erase(outputs.begin() + static_cast<int64_t>(i));
    for (Value* input : node->inputs()) {
      const bool known = input == nullptr || std::find(outputs.begin(), outputs.end(), input) != outputs.end();
      if (!known && input->producer() != nullptr) outputs.push_back(input);
    }
    if (outputs.empty()) continue;
    set_outputs(*graph, outputs);
    if (keep(now, std::move(graph), now.inputs, fails)) return true;
  }
  return false;
}

std::vector<RefTensor<double>> results_of(const Graph& graph, const Inputs& inputs, size_t node) {
  const std::unique_ptr<Graph> copy = graph.clone();
  copy->set_outputs(copy->nodes()[node]->outputs());
  return interpret<double>(*copy, inputs);
}

// A graph in which node `index` is gone: its results are inputs. What it read is returned where `upstream` says so.
std::unique_ptr<Graph> with_node_given(const Graph& from, size_t index, bool upstream, Inputs& inputs) {
  const std::vector<RefTensor<double>> results = results_of(from, inputs, index);
  std::unique_ptr<Graph> graph = from.clone();
  Node* node = graph->nodes()[index];
  for (size_t i = 0; i < results.size(); ++i) {
    Value* given = graph->add_input(node->output(i)->name() + "_given", node->output(i)->type());
    graph->replace_all_uses(node->output(i), given);
    RefTensor<double> numbers = results[i];
    for (double& number : numbers.f) number = static_cast<float>(number);
    inputs[given->name()] = std::move(numbers);
  }
  std::vector<Value*> outputs = graph->outputs();
  for (Value* input : node->inputs()) {
    if (upstream && input != nullptr && input->producer() != nullptr) outputs.push_back(input);
  }
  graph->erase(node);
  set_outputs(*graph, outputs);
  return graph;
}

// A node gives way to inputs of its results; what is before it may then be dead, or stays as a part of its own.
bool with_a_node_given(Shrunk& now, const Fails& fails) {
  for (const bool upstream : {false, true}) {
    for (size_t i = 0; i < now.graph->nodes().size(); ++i) {
      Inputs inputs = now.inputs;
      std::unique_ptr<Graph> graph = with_node_given(*now.graph, i, upstream, inputs);
      if (keep(now, std::move(graph), std::move(inputs), fails)) return true;
    }
  }
  return false;
}

}  // namespace

Shrunk shrink(const Graph& graph, const Inputs& inputs, const Fails& fails) {
  Shrunk now{graph.clone(), inputs};
  while (with_fewer_outputs(now, fails) || without_a_last_node(now, fails) || with_a_node_given(now, fails)) {
  }
  return now;
}

}  // namespace atb::random_graphs
