// SPDX-License-Identifier: Apache-2.0
#include "passes/externals.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/builder.h"
#include "ir/text.h"
#include "ops/external_util.h"
#include "ops/plugin_util.h"

namespace atb {
namespace {

bool contains(const std::vector<Value*>& values, const Value* value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// A constant of one element whose value the text form keeps.
bool is_number(const Value* value) {
  return value->is_constant() && value->rank() == 0 && !value->constant()->absent() &&
         value->constant()->encoding() == nullptr;
}

// A set of nodes seen from outside.
class Region {
 public:
  explicit Region(Graph& graph, const std::vector<Node*>& nodes) : graph_(graph), nodes_(nodes) {
    require(!nodes.empty(), Code::kInvalidArgument, "[GraphOptimizer] a match holds no nodes");
    set_.insert(nodes.begin(), nodes.end());
    std::sort(nodes_.begin(), nodes_.end(),
              [&](const Node* a, const Node* b) { return graph.position(a) < graph.position(b); });
    nodes_.erase(std::unique(nodes_.begin(), nodes_.end()), nodes_.end());
    collect();
  }

  const std::vector<Node*>& nodes() const { return nodes_; }  // in execution order, each once
  const std::vector<Value*>& entering() const { return entering_; }
  const std::vector<Value*>& leaving() const { return leaving_; }
  bool makes(const Value* value) const { return set_.count(value->producer()) != 0; }

  int layer() const {
    for (const Node* node : nodes_) {
      if (node->layer() >= 0) return node->layer();
    }
    return -1;
  }

  // Who else reads the value: "%sum is read by out, outside the match".
  std::string outside_use(const Value* value) const {
    for (const Use& use : value->uses()) {
      if (set_.count(use.node) == 0) return "%" + value->name() + " is read by " + use.node->name();
    }
    return "%" + value->name() + " is returned by the graph";
  }

 private:
  void collect() {
    for (const Node* node : nodes_) {
      for (Value* input : node->inputs()) {
        if (input != nullptr && !makes(input) && !contains(entering_, input)) entering_.push_back(input);
      }
      for (Value* output : node->outputs()) {
        const auto& uses = output->uses();
        const bool read = std::any_of(uses.begin(), uses.end(), [&](const Use& u) { return set_.count(u.node) == 0; });
        if (read || graph_.is_output(output)) leaving_.push_back(output);
      }
    }
  }

  Graph& graph_;
  std::vector<Node*> nodes_;
  std::unordered_set<const Node*> set_;
  std::vector<Value*> entering_;
  std::vector<Value*> leaving_;
};

// Puts definitions in the place of the external nodes that have one and are `chosen`. Returns how many.
int64_t expand_all(Graph& graph, const std::function<bool(const Node&)>& chosen) {
  int64_t expanded = 0;
  for (Node* node : std::vector<Node*>(graph.nodes())) {
    if (!node->is("external") || !has_body(*node) || !chosen(*node)) continue;
    const std::unique_ptr<Graph> body = body_of(node->attrs());
    Rewriter rewriter(graph, node);
    const std::vector<Value*> outputs = rewriter.inlined(*body, node->inputs());
    for (size_t i = 0; i < outputs.size(); ++i) rewriter.replace(node->output(i), outputs[i]);
    rewriter.retire({node});
    const std::string name = node->name();
    const auto refused = rewriter.commit();
    require(!refused, Code::kInternal, "[external] ", name, ": its definition does not fit: ", refused.value_or(""));
    ++expanded;
  }
  return expanded;
}

// The region as a graph of its own, in plain operators as far as definitions are known.
std::string text_of(const Region& region, const std::string& name, const std::vector<Value*>& inputs,
                    const std::vector<Value*>& outputs) {
  Graph body(name);
  std::unordered_map<const Value*, Value*> twin{{nullptr, nullptr}};
  for (const Value* input : inputs) twin[input] = body.add_input(input->name(), input->type());
  for (const Value* value : region.entering()) {
    if (twin.count(value) == 0) twin[value] = body.add_constant(value->constant());
  }
  for (const Node* node : region.nodes()) {
    std::vector<Value*> operands;
    for (const Value* input : node->inputs()) operands.push_back(twin.at(input));
    Node* copy = body.add_node(node->op(), std::move(operands), node->attrs(), node->name());
    copy->set_layer(node->layer());
    copy->set_scope(node->scope());
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      twin[node->output(i)] = copy->output(i);
      body.rename(copy->output(i), node->output(i)->name());
    }
  }
  std::vector<Value*> results;
  for (const Value* output : outputs) results.push_back(twin.at(output));
  body.set_outputs(std::move(results));
  while (expand_all(body, [](const Node&) { return true; }) > 0) {
  }
  return print(body);
}

// Builds and commits; what an operator's shape rule refuses is a reason too.
std::optional<std::string> try_commit(Rewriter& rewriter, const std::function<void()>& build) {
  try {
    build();
  } catch (const Error& error) {
    if (error.code() != Code::kInvalidArgument) throw;
    return error.what();
  }
  return rewriter.commit();
}

// Nothing that is read outside may be lost.
std::optional<std::string> check_outputs(const Region& region, const std::vector<Value*>& outputs) {
  for (const Value* value : region.leaving()) {
    if (!contains(outputs, value)) return region.outside_use(value) + ", outside the match, but is no output";
  }
  if (outputs.empty()) return "nothing that it computes is read";
  for (const Node* node : region.nodes()) {
    if (node->op().has_state) return node->name() + " has state (a KV cache)";
  }
  return std::nullopt;
}

void require_made(const Region& region, const std::vector<Value*>& outputs) {
  for (const Value* output : outputs) {
    require(region.makes(output), Code::kInvalidArgument, "[GraphOptimizer] output %", output->name(),
            " is made by none of the matched nodes");
  }
}

}  // namespace

std::optional<std::string> fuse_external(Graph& graph, const std::vector<Node*>& nodes, const ExternalSpec& spec,
                                         Node** made) {
  const Region region(graph, nodes);
  std::vector<Value*> inputs = spec.inputs;
  if (inputs.empty()) {
    std::copy_if(region.entering().begin(), region.entering().end(), std::back_inserter(inputs),
                 [](const Value* value) { return !is_number(value); });
  }
  const std::vector<Value*>& outputs = spec.outputs.empty() ? region.leaving() : spec.outputs;
  for (const Value* input : inputs) {
    require(!region.makes(input), Code::kInvalidArgument, "[GraphOptimizer] ", spec.target, ": input %", input->name(),
            " is made by the matched nodes themselves");
  }
  require_made(region, outputs);
  for (const Value* value : region.entering()) {
    if (!contains(inputs, value) && !is_number(value)) return "%" + value->name() + " is read, but is no input";
  }
  if (const auto refused = check_outputs(region, outputs)) return refused;

  Rewriter rewriter(graph, region.nodes().back());
  return try_commit(rewriter, [&] {
    Node* node = rewriter.node(
        "external", inputs,
        {{"target", spec.target}, {"body", text_of(region, spec.target, inputs, outputs)}, {"kernel", spec.kernel}});
    node->set_layer(region.layer());
    node->set_scope(region.nodes().front()->scope());
    for (size_t i = 0; i < outputs.size(); ++i) rewriter.replace(outputs[i], node->output(i));
    rewriter.retire(region.nodes());
    if (made != nullptr) *made = node;
  });
}

std::optional<std::string> replace_nodes(Graph& graph, const std::vector<Node*>& nodes,
                                         const std::vector<Value*>& outputs,
                                         const std::function<std::vector<Value*>(Rewriter&)>& build) {
  const Region region(graph, nodes);
  require_made(region, outputs);
  if (const auto refused = check_outputs(region, outputs)) return refused;
  Rewriter rewriter(graph, region.nodes().back());
  return try_commit(rewriter, [&] {
    const std::vector<Value*> results = build(rewriter);
    require(results.size() == outputs.size(), Code::kInternal, "[GraphOptimizer] the replacement gives ",
            results.size(), " values, the match ", outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) rewriter.replace(outputs[i], results[i]);
    rewriter.retire(region.nodes());
  });
}

int64_t expand_externals(Graph& graph) {
  const auto without_kernel = [](const Node& node) {
    return kernel_name(node).empty() && find_plugin(node) == nullptr;
  };
  int64_t expanded = 0;
  for (int64_t in_sweep = 1; in_sweep > 0; expanded += in_sweep) {  // a definition may hold further ones
    in_sweep = expand_all(graph, without_kernel);
  }
  return expanded;
}

}  // namespace atb
