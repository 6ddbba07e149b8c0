// SPDX-License-Identifier: Apache-2.0
#include "ir/bound_shapes.h"

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "ir/op.h"
#include "ir/schema.h"
#include "ir/text.h"

namespace atb {
namespace {

class BoundShapes {
 public:
  BoundShapes(const Graph& graph, const Bindings& bindings) : graph_(graph), bindings_(bindings) {
    for (const auto& [symbol, value] : bindings) {
      here_ += (here_.empty() ? "; here " : ", ") + symbol + " = " + std::to_string(value);
    }
  }

  void run() {
    for (const Node* node : graph_.nodes()) check(*node);
  }

 private:
  void check(const Node& node) {
    if (node.is("external") && check_external(node)) return;
    std::vector<Value*> inputs;
    for (Value* input : node.inputs()) inputs.push_back(bound(input));
    const std::vector<Type> types = rule(node, inputs);
    for (size_t i = 0; i < types.size(); ++i) {
      const Type expected = bound(node, node.output(i)->type());
      require(types[i] == expected, Code::kInvalidArgument, "[", node.op_name(), "] ", node.name(), ": gives ",
              types[i].str(), ", the graph says ", expected.str(), here_);
    }
  }

  // Types of an external node are given, or those of its body, in whose text symbols are not bound. False where the
  // body is over other types than the node's.
  bool check_external(const Node& node) {
    for (const Value* output : node.outputs()) bound(node, output->type());
    const std::string& text = node.attrs().text("body");
    if (text.empty()) return true;
    const std::unique_ptr<Graph> body = parse_graph(text);
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if (body->inputs()[i]->type() != node.input(i)->type()) return false;
    }
    check_bound_shapes(*body, bindings_);
    return true;
  }

  std::vector<Type> rule(const Node& node, const std::vector<Value*>& inputs) const {
    try {
      return infer_types(node.op(), inputs, bound(node.attrs()), node.name());
    } catch (const Error& error) {
      throw_error(error.code(), error.what(), here_);
    }
  }

  // A stand-in of the value with its extents; constants have theirs already.
  Value* bound(Value* value) {
    if (value == nullptr || value->is_constant()) return value;
    Value*& stand_in = stand_ins_[value];
    if (stand_in == nullptr) {
      const Type type = value->producer() == nullptr ? bound("[graph] input " + value->name(), value->type())
                                                     : bound(*value->producer(), value->type());
      stand_in = scratch_.add_input("v" + std::to_string(stand_ins_.size()), type);
    }
    return stand_in;
  }

  Type bound(const Node& node, const Type& type) const {
    return bound("[" + std::string(node.op_name()) + "] " + node.name(), type);
  }

  Type bound(const std::string& where, Type type) const {
    for (Dim& dim : type.shape) {
      const int64_t extent = dim.eval(bindings_);
      require(extent >= 0, Code::kInvalidArgument, where, ": extent ", dim.str(), " is ", extent, here_);
      dim = Dim(extent);
    }
    return type;
  }

  Attrs bound(const Attrs& attrs) const {
    Attrs result = attrs;
    for (const auto& [name, value] : attrs.items()) {
      const auto* shape = std::get_if<Shape>(&value);
      if (shape == nullptr) continue;
      Shape extents;
      for (const Dim& dim : *shape) extents.push_back(Dim(dim.eval(bindings_)));
      result.set(name, extents);
    }
    return result;
  }

  const Graph& graph_;
  const Bindings& bindings_;
  std::string here_;
  Graph scratch_{"bound"};
  std::unordered_map<const Value*, Value*> stand_ins_;
};

}  // namespace

void check_bound_shapes(const Graph& graph, const Bindings& bindings) {
  if (!bindings.empty()) BoundShapes(graph, bindings).run();
}

}  // namespace atb
