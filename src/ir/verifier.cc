// SPDX-License-Identifier: Apache-2.0
// Checks a graph's invariants, one kind after another, and names the first that does not hold.
#include "ir/verifier.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/op.h"
#include "ir/schema.h"

namespace atb {
namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, std::string_view what) : graph_(graph), what_(what) {}

  void run() {
    for (const Value* input : graph_.inputs()) check_input(*input);
    for (const Node* node : graph_.nodes()) check_node(*node);
    check_outputs();
    check_uses();
    check_states();
    check_symbols();
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const std::string& where, const Parts&... problem) const {
    throw_error(Code::kInternal, "[verifier] after ", what_, ": ", where, ": ", problem...);
  }

  void check_input(const Value& input) {
    if (!input.is_input() || input.graph() != &graph_) fail(input.name(), "is listed as an input, but is none");
    define(input);
  }

  void define(const Value& value) {
    if (!names_.insert(value.name()).second) fail(value.name(), "two values have this name");
    if (!defined_.insert(&value).second) fail(value.name(), "is defined twice");
  }

  void check_node(const Node& node) {
    if (node.graph() != &graph_) fail(node.name(), "belongs to another graph");
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      const Value* input = node.input(i);
      if (input == nullptr) continue;
      check_readable(node.name(), *input);
      ++uses_[input];
      if (std::find(input->uses().begin(), input->uses().end(), Use{const_cast<Node*>(&node), static_cast<int>(i)}) ==
          input->uses().end()) {
        fail(node.name(), "input ", i, " is not in the use list of ", input->name());
      }
    }
    check_schema(node);
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      const Value& output = *node.output(i);
      if (output.producer() != &node || output.output_index() != static_cast<int>(i)) {
        fail(node.name(), "output ", output.name(), " has another producer");
      }
      define(output);
    }
  }

  // A value that may be read here: of this graph, and a constant or defined before.
  void check_readable(const std::string& where, const Value& value) {
    if (value.graph() != &graph_) fail(where, "reads ", value.name(), " of another graph");
    if (value.is_constant()) {
      if (constants_.insert(&value).second && !names_.insert(value.name()).second) {
        fail(value.name(), "two values have this name");
      }
    } else if (!defined_.contains(&value)) {
      fail(where, "reads ", value.name(), " before it is defined");
    }
  }

  void check_schema(const Node& node) const {
    try {
      check_inputs(node.op(), node.inputs(), node.name());
      if (!(complete_attrs(node.op(), node.attrs(), node.name()) == node.attrs())) {
        fail(node.name(), "its attributes are not as its schema completes them");
      }
      const std::vector<Type> types = infer_types(node.op(), node.inputs(), node.attrs(), node.name());
      if (types.size() != node.outputs().size()) {
        fail(node.name(), "has ", node.outputs().size(), " outputs, its rule gives ", types.size());
      }
      for (size_t i = 0; i < types.size(); ++i) {
        const Type& type = node.output(i)->type();
        if (!(type == types[i]))
          fail(node.name(), "output ", i, " is ", type.str(), ", its rule gives ", types[i].str());
      }
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with("[verifier]")) throw;
      fail(node.name(), error.what());
    }
  }

  void check_outputs() {
    if (graph_.output_names().size() != graph_.outputs().size()) fail("outputs", "names and values differ in number");
    for (const Value* output : graph_.outputs()) check_readable("outputs", *output);
  }

  // Every use that a value lists was counted at its node; so nothing else may be listed.
  void check_uses() const {
    const auto check = [&](const Value& value) {
      const auto it = uses_.find(&value);
      const size_t counted = it == uses_.end() ? 0 : it->second;
      if (value.uses().size() != counted) {
        fail(value.name(), "lists ", value.uses().size(), " uses, the nodes have ", counted);
      }
    };
    for (const Value* value : defined_) check(*value);
    for (const Value* value : constants_) check(*value);
  }

  // A state has at most one successor (a node that reads it and makes the next version); whatever else reads it comes
  // before that; and a state with a successor is no output.
  void check_states() const {
    for (const Value* value : defined_) {
      if (value->type().dtype != DType::kState) continue;
      const Node* successor = nullptr;
      for (const Use& use : value->uses()) {
        if (!makes_state(*use.node)) continue;
        if (successor != nullptr)
          fail(value->name(), "the state has two successors, ", successor->name(), " and ", use.node->name());
        successor = use.node;
      }
      if (successor == nullptr) continue;
      if (graph_.is_output(value))
        fail(value->name(), "the state is an output, but ", successor->name(), " changes it");
      for (const Use& use : value->uses()) {
        if (graph_.position(use.node) > graph_.position(successor)) {
          fail(use.node->name(), "reads the state ", value->name(), " after ", successor->name(), " has changed it");
        }
      }
    }
  }

  static bool makes_state(const Node& node) {
    return std::any_of(node.outputs().begin(), node.outputs().end(),
                       [](const Value* output) { return output->type().dtype == DType::kState; });
  }

  void check_symbols() const {
    SymbolRanges ranges;
    for (const Value* value : defined_) {
      for (const Dim& extent : value->shape()) collect_symbols(extent, ranges);
    }
    for (const auto& [name, range] : ranges) {
      if (range.lo > range.hi) fail("symbol " + name, "its ranges have nothing in common");
    }
  }

  const Graph& graph_;
  std::string_view what_;
  std::unordered_set<const Value*> defined_;    // inputs and outputs of the nodes seen so far
  std::unordered_set<const Value*> constants_;  // those read
  std::unordered_set<std::string> names_;
  std::unordered_map<const Value*, size_t> uses_;
};

}  // namespace

void verify(const Graph& graph, std::string_view what) { Verifier(graph, what).run(); }

}  // namespace atb
