// SPDX-License-Identifier: Apache-2.0
// Copies nodes with operands, attributes and symbols of the graph that takes them.
#include "ir/splice.h"

#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "ir/op.h"
#include "ir/text.h"

namespace atb {
namespace {

using Extents = std::map<std::string, Dim, std::less<>>;

class Splicer {
 public:
  Splicer(Graph& graph, const Graph& body, int layer, const std::string& scope)
      : graph_(graph), body_(body), layer_(layer), scope_(scope) {}

  void bind_input(const Value& input, Value* actual) {
    const bool fits = actual->type().dtype == input.type().dtype && actual->rank() == input.rank();
    if (!fits) refuse(input, *actual);
    for (int axis = 0; axis < input.rank(); ++axis) bind(input, *actual, axis);
    twin_[&input] = actual;
  }

  void bind_constant(const Value& constant, Value* actual) {
    if (!(constant.type() == actual->type())) refuse(constant, *actual);
    twin_[&constant] = actual;
  }

  void bring_constant(const Value& constant) { twin_[&constant] = graph_.add_constant(constant.constant()); }

  void copy(const Node& node) {
    std::vector<Value*> operands;
    for (const Value* input : node.inputs()) operands.push_back(twin_.at(input));
    Node* made = graph_.add_node(node.op(), std::move(operands), attrs_of(node), node.name());
    made->set_layer(layer_);
    made->set_scope(node.scope().empty() || scope_.empty() ? scope_ + node.scope() : scope_ + "." + node.scope());
    for (size_t i = 0; i < node.outputs().size(); ++i) twin_[node.output(i)] = made->output(i);
  }

  Value* at(const Value* value) const { return twin_.at(value); }

 private:
  [[noreturn]] void refuse(const Value& expected, const Value& actual) const {
    throw_error(Code::kInvalidArgument, "[", body_.name(), "] ", expected.name(), ": is ", actual.type().str(),
                ", expected ", expected.type().str());
  }

  void bind(const Value& input, const Value& actual, int axis) {
    const Dim& wanted = input.dim(axis);
    const Dim& given = actual.dim(axis);
    if (wanted.is_constant()) {
      if (equal(wanted, given) != Tri::kYes) refuse(input, actual);
      return;
    }
    const auto [it, added] = extents_.emplace(wanted.str(), given);
    if (!added && equal(it->second, given) != Tri::kYes) refuse(input, actual);
  }

  Attrs attrs_of(const Node& node) const {
    Attrs attrs = node.attrs();
    for (const auto& [name, attr] : node.attrs().items()) {
      if (const Shape* shape = std::get_if<Shape>(&attr)) attrs.set(name, here(*shape));
    }
    // What an operator from outside gives is written as text.
    if (node.is("external") && attrs.has("types")) attrs.set("types", types_here(attrs.text("types")));
    return attrs;
  }

  Shape here(const Shape& shape) const {
    Shape result;
    for (const Dim& dim : shape) result.push_back(dim.substitute(extents_));
    return result;
  }

  std::string types_here(const std::string& text) const {
    std::string result;
    for (Type type : parse_types(text)) {
      type.shape = here(type.shape);
      result += (result.empty() ? "" : ", ") + type.str();
    }
    return result;
  }

  Graph& graph_;
  const Graph& body_;
  const int layer_;
  const std::string& scope_;
  Extents extents_;  // of the body's symbols
  std::unordered_map<const Value*, Value*> twin_{{nullptr, nullptr}};
};

}  // namespace

std::vector<Value*> splice_graph(Graph& graph, const Graph& body, std::span<Value* const> inputs,
                                 const std::map<std::string, Value*, std::less<>>& constants, int layer,
                                 const std::string& scope) {
  require(inputs.size() == body.inputs().size(), Code::kInvalidArgument, "[", body.name(), "] takes ",
          body.inputs().size(), " inputs, not ", inputs.size());
  Splicer splicer(graph, body, layer, scope);
  for (size_t i = 0; i < inputs.size(); ++i) splicer.bind_input(*body.inputs()[i], inputs[i]);
  for (const Value* constant : body.constants()) {
    const auto given = constants.find(constant->name());
    if (given == constants.end()) {
      splicer.bring_constant(*constant);
    } else {
      splicer.bind_constant(*constant, given->second);
    }
  }
  for (const Node* node : body.nodes()) splicer.copy(*node);
  std::vector<Value*> outputs;
  for (const Value* output : body.outputs()) outputs.push_back(splicer.at(output));
  return outputs;
}

}  // namespace atb
