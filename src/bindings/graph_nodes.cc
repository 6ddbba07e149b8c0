// SPDX-License-Identifier: Apache-2.0
#include "bindings/graph_nodes.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/attrs.h"
#include "core/error.h"
#include "ir/op.h"
#include "passes/analysis/scalar.h"
#include "passes/externals.h"

namespace atb {
namespace {

namespace nb = nanobind;
using Names = std::vector<std::string>;

nb::tuple type_of(const Value* value) {
  return nb::make_tuple(value->name(), std::string(dtype_name(value->type().dtype)), to_string(value->shape()));
}

// (kind, name, target, names of inputs, attributes, outputs, layer, scope)
nb::tuple describe(const char* kind, const std::string& target, const Value* value) {
  nb::dict attrs;
  if (const auto number = scalar_value(value)) attrs["value"] = *number;
  return nb::make_tuple(kind, value->name(), target, nb::list(), attrs, nb::make_tuple(type_of(value)), -1, "");
}

nb::tuple describe(const Node& node) {
  nb::list inputs, outputs;
  nb::dict attrs;
  for (const Value* input : node.inputs()) {
    if (input == nullptr) {
      inputs.append(nb::none());
    } else {
      inputs.append(input->name());
    }
  }
  for (const Value* output : node.outputs()) outputs.append(type_of(output));
  for (const auto& [name, attr] : node.attrs().items()) attrs[name.c_str()] = attr_to_python(attr);
  const std::string& target = node.is("external") ? node.attrs().text("target") : node.op_name();
  return nb::make_tuple("call_function", node.name(), target, inputs, attrs, nb::tuple(outputs), node.layer(),
                        node.scope());
}

nb::list nodes_of(const Graph& graph) {
  nb::list nodes;
  for (const Value* input : graph.inputs()) nodes.append(describe("placeholder", input->name(), input));
  for (const Value* constant : graph.constants()) nodes.append(describe("get_attr", constant->name(), constant));
  for (const Node* node : graph.nodes()) nodes.append(describe(*node));
  nb::list results;
  for (const Value* output : graph.outputs()) results.append(output->name());
  nodes.append(nb::make_tuple("output", "output", "output", results, nb::dict(), nb::make_tuple(), -1, std::string()));
  return nodes;
}

// Values of a graph by name.
class Lookup {
 public:
  explicit Lookup(const Graph& graph) {
    for (Value* input : graph.inputs()) values_.emplace(input->name(), input);
    for (Value* constant : graph.constants()) values_.emplace(constant->name(), constant);
    for (const Node* node : graph.nodes()) {
      for (Value* output : node->outputs()) values_.emplace(output->name(), output);
    }
  }

  Value* value(const std::string& name) const {
    const auto it = values_.find(name);
    require(it != values_.end(), Code::kNotFound, "[GraphOptimizer] the graph has no value ", name,
            "; nodes are of the graph as match() saw it");
    return it->second;
  }

  std::vector<Value*> values(const Names& names) const {
    std::vector<Value*> found;
    for (const std::string& name : names) found.push_back(value(name));
    return found;
  }

  std::vector<Node*> nodes(const Names& names) const {
    std::vector<Node*> found;
    for (const std::string& name : names) {
      Node* node = value(name)->producer();
      require(node != nullptr, Code::kInvalidArgument, "[GraphOptimizer] ", name,
              " is an input or a constant, not an operator");
      found.push_back(node);
    }
    return found;
  }

 private:
  std::unordered_map<std::string, Value*> values_;
};

// The name of the new node, and None; or no name, and the reason why not.
nb::tuple fuse(Graph& graph, const Names& nodes, const std::string& target, const std::string& kernel,
               const Names& inputs, const Names& outputs) {
  const Lookup lookup(graph);
  Node* made = nullptr;
  const auto refused =
      fuse_external(graph, lookup.nodes(nodes), {target, kernel, lookup.values(inputs), lookup.values(outputs)}, &made);
  if (refused) return nb::make_tuple("", *refused);
  return nb::make_tuple(made->name(), nb::none());
}

// A number beside operands of a dtype is of that dtype, as in Python.
ConstantRef number_constant(DType dtype, nb::handle number) {
  if (is_float(dtype)) return scalar_constant(dtype, nb::cast<double>(number));
  std::vector<std::byte> bytes(sizeof(int64_t));
  const int64_t integer = nb::cast<int64_t>(number);
  std::memcpy(bytes.data(), &integer, sizeof(integer));
  if (dtype == DType::kI64) {
    return Constant::from_storage("number", dtype, nullptr, {}, storage_from_bytes(std::move(bytes)), 0);
  }
  const auto narrow = static_cast<int32_t>(integer);
  return Constant::from_i32("number", {}, {&narrow, 1});
}

// Builds the steps of a replacement. An operand is the name of a value, (step, output) of an earlier step, a number, or
// None.
class Steps {
 public:
  Steps(const Lookup& lookup, Rewriter& rewriter) : lookup_(lookup), rewriter_(rewriter) {}

  void add(const nb::tuple& step) {
    const OpDef& op = OpRegistry::instance().get(nb::cast<std::string>(step[0]));
    const nb::list operands = nb::cast<nb::list>(step[1]);
    std::vector<Value*> inputs;
    for (nb::handle operand : operands) inputs.push_back(is_number(operand) ? nullptr : value(operand));
    DType dtype = DType::kF32;
    for (const Value* input : inputs) {
      if (input == nullptr) continue;
      dtype = input->type().dtype;
      break;
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (is_number(operands[i])) inputs[i] = rewriter_.constant(number_constant(dtype, operands[i]));
    }
    made_.push_back(rewriter_.node(op.name, std::move(inputs),
                                   attrs_from_python(op, nb::cast<nb::dict>(step[2]), "[pattern] replacement:")));
  }

  Value* value(nb::handle operand) const {
    if (operand.is_none()) return nullptr;
    if (nb::isinstance<nb::str>(operand)) return lookup_.value(nb::cast<std::string>(operand));
    const auto [step, output] = nb::cast<std::pair<size_t, size_t>>(operand);
    require(step < made_.size() && output < made_[step]->outputs().size(), Code::kInvalidArgument,
            "[pattern] replacement: step ", step, " has no result ", output);
    return made_[step]->output(output);
  }

 private:
  static bool is_number(nb::handle operand) {
    return nb::isinstance<nb::float_>(operand) || nb::isinstance<nb::int_>(operand);
  }

  const Lookup& lookup_;
  Rewriter& rewriter_;
  std::vector<Node*> made_;
};

// None, or the reason why not.
std::optional<std::string> replace(Graph& graph, const Names& nodes, const Names& outputs, const nb::list& steps,
                                   const nb::list& results) {
  const Lookup lookup(graph);
  return replace_nodes(graph, lookup.nodes(nodes), lookup.values(outputs), [&](Rewriter& rewriter) {
    Steps built(lookup, rewriter);
    for (nb::handle step : steps) built.add(nb::cast<nb::tuple>(step));
    std::vector<Value*> values;
    for (nb::handle result : results) values.push_back(built.value(result));
    return values;
  });
}

}  // namespace

void bind_graph_nodes(nb::class_<Graph>& graph) {
  graph
      .def("nodes", &nodes_of, nb::sig("def nodes(self) -> list[tuple[typing.Any, ...]]"),
           "(kind, name, target, names of inputs, attributes, (name, dtype, shape) of outputs, layer, scope) a node.")
      .def("fuse", &fuse, nb::arg("nodes"), nb::arg("target"), nb::arg("kernel"), nb::arg("inputs"), nb::arg("outputs"),
           nb::sig("def fuse(self, nodes: list[str], target: str, kernel: str, inputs: list[str], outputs: list[str]) "
                   "-> tuple[str, str | None]"),
           "Replaces nodes by one external node: its name, or the reason why not. Empty lists: what enters and leaves.")
      .def(
          "replace", &replace, nb::arg("nodes"), nb::arg("outputs"), nb::arg("steps"), nb::arg("results"),
          nb::sig("def replace(self, nodes: list[str], outputs: list[str], "
                  "steps: list[tuple[str, list[typing.Any], dict[str, typing.Any]]], "
                  "results: list[typing.Any]) -> str | None"),
          "Replaces the outputs of nodes by the results of operators (name, operands, attributes): the reason why not, "
          "or None. An operand is a name, (step, output), a number, or None.");
}

}  // namespace atb
