// SPDX-License-Identifier: Apache-2.0
#include "bindings/graph_builder.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/attrs.h"
#include "core/error.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "ir/splice.h"
#include "ir/verifier.h"

namespace atb {
namespace {

namespace nb = nanobind;

// The graph under construction; null once it was finished. Values keep it, so that none outlives its graph.
using Building = std::shared_ptr<std::unique_ptr<Graph>>;

// A value of a graph under construction.
struct BuilderValue {
  Building graph;
  Value* value = nullptr;

  const Value& get() const {
    require(*graph != nullptr, Code::kFailedPrecondition, "[builder] this value's graph is finished");
    return *value;
  }
};

nb::tuple python_shape(const BuilderValue& value) {
  nb::list dims;
  for (const Dim& dim : value.get().shape()) dims.append(dim_to_python(dim));
  return nb::tuple(dims);
}

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name)
      : graph_(std::make_shared<std::unique_ptr<Graph>>(std::make_unique<Graph>(std::move(name)))) {}

  void add_symbol(const std::string& name, int64_t lo, int64_t hi) {
    const Dim plain = Dim::parse(name);
    require(!plain.is_constant() && plain.str() == name, Code::kInvalidArgument, "[builder] ", name,
            " is no name of a symbol");
    require(lo >= 0 && hi >= lo, Code::kInvalidArgument, "[builder] symbol ", name, ": range [", lo, ", ", hi,
            "] is not one of extents");
    require(symbols_.emplace(name, Dim::symbol(name, lo, hi)).second, Code::kInvalidArgument, "[builder] symbol ", name,
            " is defined twice");
  }

  BuilderValue add_input(std::string name, std::string_view dtype, nb::handle shape) {
    const std::optional<DType> type = dtype_from_name(dtype);
    require(type.has_value(), Code::kInvalidArgument, "[builder] input ", name, ": there is no dtype ", dtype);
    return wrap(graph().add_input(std::move(name), Type{*type, to_shape(shape)}));
  }

  BuilderValue add_constant(const std::string& name, nb::handle array) {
    return wrap(graph().add_constant(constant_from_array(name, array)));
  }

  std::vector<BuilderValue> node(std::string_view op_name, const std::vector<std::optional<BuilderValue>>& inputs,
                                 const nb::dict& attrs, std::string name, int layer, std::string scope) {
    const OpDef& op = OpRegistry::instance().get(op_name);
    std::vector<Value*> values;
    for (const std::optional<BuilderValue>& input : inputs) values.push_back(input ? unwrap(*input) : nullptr);
    Node* node = graph().add_node(op, std::move(values), to_attrs(op, attrs), std::move(name));
    node->set_layer(layer);
    node->set_scope(std::move(scope));
    std::vector<BuilderValue> outputs;
    for (Value* output : node->outputs()) outputs.push_back(wrap(output));
    return outputs;
  }

  std::vector<BuilderValue> splice(const Graph& body, const std::vector<BuilderValue>& inputs,
                                   const std::map<std::string, BuilderValue>& constants, int layer,
                                   const std::string& scope) {
    std::vector<Value*> operands;
    for (const BuilderValue& input : inputs) operands.push_back(unwrap(input));
    std::map<std::string, Value*, std::less<>> held;
    for (const auto& [name, value] : constants) held.emplace(name, unwrap(value));
    std::vector<BuilderValue> outputs;
    for (Value* output : splice_graph(graph(), body, operands, held, layer, scope)) outputs.push_back(wrap(output));
    return outputs;
  }

  void set_outputs(const std::vector<BuilderValue>& values, std::vector<std::string> names) {
    require(values.size() == names.size(), Code::kInvalidArgument, "[builder] ", values.size(), " outputs, ",
            names.size(), " names");
    std::vector<Value*> outputs;
    for (const BuilderValue& value : values) outputs.push_back(unwrap(value));
    graph().set_outputs(std::move(outputs), std::move(names));
  }

  std::unique_ptr<Graph> finish() {
    verify(graph(), "building");
    return std::move(*graph_);
  }

 private:
  Graph& graph() const {
    require(*graph_ != nullptr, Code::kFailedPrecondition, "[builder] the graph is finished");
    return **graph_;
  }
  BuilderValue wrap(Value* value) const { return {graph_, value}; }
  Value* unwrap(const BuilderValue& value) const {
    require(value.graph == graph_, Code::kInvalidArgument, "[builder] a value of another graph");
    return value.value;
  }

  // Over the symbols that were added.
  Dim ranged(const Dim& dim) const {
    SymbolRanges used;
    collect_symbols(dim, used);
    for (const auto& [symbol, range] : used) {
      require(symbols_.contains(symbol), Code::kInvalidArgument, "[builder] dim ", dim.str(), ": there is no symbol ",
              symbol);
    }
    return dim.substitute(symbols_);
  }

  Shape to_shape(nb::handle items) const {
    Shape shape;
    for (const nb::handle item : nb::borrow<nb::sequence>(items)) {
      shape.push_back(ranged(dim_from_python(item, "[builder]")));
    }
    return shape;
  }

  Attrs to_attrs(const OpDef& op, const nb::dict& items) const {
    return attrs_from_python(op, items, "[builder]", [this](const Dim& dim) { return ranged(dim); });
  }

  Building graph_;
  std::map<std::string, Dim, std::less<>> symbols_;
};

}  // namespace

void bind_graph_builder(nb::module_& module) {
  nb::class_<BuilderValue>(module, "BuilderValue", "A value of a graph under construction.")
      .def_prop_ro("name", [](const BuilderValue& value) { return value.get().name(); })
      .def_prop_ro("dtype", [](const BuilderValue& value) { return std::string(dtype_name(value.get().type().dtype)); })
      .def_prop_ro("shape", &python_shape, nb::sig("def shape(self) -> tuple[int | str, ...]"))
      .def_prop_ro("is_constant", [](const BuilderValue& value) { return value.get().is_constant(); });
  nb::class_<GraphBuilder>(module, "GraphBuilder", "Makes a graph node by node; dims are ints or text over symbols.")
      .def(nb::init<std::string>(), nb::arg("name"))
      .def("add_symbol", &GraphBuilder::add_symbol, nb::arg("name"), nb::arg("lo"), nb::arg("hi"))
      .def("add_input", &GraphBuilder::add_input, nb::arg("name"), nb::arg("dtype"), nb::arg("shape"),
           nb::sig("def add_input(self, name: str, dtype: str, shape: typing.Sequence[int | str]) -> BuilderValue"))
      .def("add_constant", &GraphBuilder::add_constant, nb::arg("name"), nb::arg("array"),
           nb::sig("def add_constant(self, name: str, array: typing.Any) -> BuilderValue"),
           "The array's own memory, which must not be changed while the graph lives.")
      .def("node", &GraphBuilder::node, nb::arg("op"), nb::arg("inputs"), nb::arg("attrs"), nb::arg("name") = "",
           nb::arg("layer") = -1, nb::arg("scope") = "",
           nb::sig("def node(self, op: str, inputs: typing.Sequence[BuilderValue | None], attrs: dict[str, "
                   "typing.Any], name: str = '', layer: int = -1, scope: str = '') -> list[BuilderValue]"))
      .def("splice", &GraphBuilder::splice, nb::arg("body"), nb::arg("inputs"), nb::arg("constants"),
           nb::arg("layer") = -1, nb::arg("scope") = "",
           "Puts a graph over symbols of its own into this one: its outputs. Constants that are not given come along.")
      .def("set_outputs", &GraphBuilder::set_outputs, nb::arg("values"), nb::arg("names"))
      .def("finish", &GraphBuilder::finish, "The verified graph; the builder cannot be used afterwards.");
}

}  // namespace atb
