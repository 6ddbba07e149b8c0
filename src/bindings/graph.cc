// SPDX-License-Identifier: Apache-2.0
#include "bindings/graph.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "api/compiled_graph.h"
#include "bindings/arrays.h"
#include "bindings/thread_count.h"
#include "core/error.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "passes/explain.h"
#include "passes/pipeline.h"

namespace atb {
namespace {

namespace nb = nanobind;

// Name, dtype and shape of an input or output, as text: ("x", "f32", "[T, 576]").
using ValueText = std::tuple<std::string, std::string, std::string>;

ValueText text_of(const std::string& name, const Type& type) {
  return {name, std::string(dtype_name(type.dtype)), to_string(type.shape)};
}

std::vector<ValueText> inputs_of(const Graph& graph) {
  std::vector<ValueText> result;
  for (const Value* input : graph.inputs()) result.push_back(text_of(input->name(), input->type()));
  return result;
}

std::vector<ValueText> outputs_of(const Graph& graph) {
  std::vector<ValueText> result;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const Value* output = graph.outputs()[i];
    const bool named = i < graph.output_names().size() && !graph.output_names()[i].empty();
    result.push_back(text_of(named ? graph.output_names()[i] : output->name(), output->type()));
  }
  return result;
}

std::unique_ptr<Graph> parse(std::string_view text, const nb::dict& constants) {
  std::unique_ptr<Graph> graph = parse_graph(text);
  for (const auto& [name, array] : constants) {
    require(nb::isinstance<nb::str>(name), Code::kInvalidArgument, "[graph] names of constants must be text");
    bind_constant(*graph, constant_from_array(nb::cast<std::string>(name), array));
  }
  verify(*graph, "parsing");
  return graph;
}

std::string optimize_json(Graph& graph, int64_t tokens) {
  return explain_json(optimize(graph, {.cache = false}), tokens);
}

std::unique_ptr<CompiledGraph> compile(const Graph& graph, int64_t threads, const std::string& precision,
                                       const std::string& device) {
  return std::make_unique<CompiledGraph>(graph.clone(), CompileOptions{device, precision, thread_count(threads)});
}

std::vector<Tensor> run(CompiledGraph& compiled, const nb::list& arrays) {
  const std::vector<Value*>& inputs = compiled.graph().inputs();
  require(arrays.size() == inputs.size(), Code::kInvalidArgument, "[graph] ", compiled.graph().name(), ": ",
          arrays.size(), " inputs given, it takes ", inputs.size());
  std::vector<BorrowedArray> borrowed;  // lent until this function returns
  std::vector<TensorView> views;
  for (size_t i = 0; i < inputs.size(); ++i) {
    borrowed.push_back(borrow_array(arrays[i], "[graph] input " + inputs[i]->name()));
    views.push_back(borrowed.back().view);
  }
  const nb::gil_scoped_release release;
  return compiled.run(views);
}

}  // namespace

void bind_graph(nb::module_& module) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Graph>(module, "Graph")
      .def_static("parse", &parse, nb::arg("text"), nb::arg("constants"),
                  nb::sig("def parse(text: str, constants: dict[str, typing.Any]) -> Graph"))
      .def("__str__", [](const Graph& graph) { return print(graph); })
      .def_prop_ro("name", &Graph::name)
      .def_prop_ro("inputs", &inputs_of)
      .def_prop_ro("outputs", &outputs_of)
      .def("optimize_json", &optimize_json, nb::arg("tokens"), Release(),
           "Rewrites the graph; the JSON of `atb explain`.")
      .def("compile", &compile, nb::arg("threads"), nb::arg("precision"), nb::arg("device"), Release());
  nb::class_<CompiledGraph>(module, "CompiledGraph")
      .def("run", &run, nb::arg("arrays"), nb::sig("def run(self, arrays: list[typing.Any]) -> list[Tensor]"))
      .def("__str__", [](const CompiledGraph& compiled) { return print(compiled.graph()); })
      .def(
          "report_json",
          [](const CompiledGraph& compiled, int64_t tokens) { return explain_json(compiled.report(), tokens); },
          nb::arg("tokens"), Release())
      .def_prop_ro("inputs", [](const CompiledGraph& compiled) { return inputs_of(compiled.graph()); })
      .def_prop_ro("outputs", [](const CompiledGraph& compiled) { return outputs_of(compiled.graph()); })
      .def_prop_ro("threads", &CompiledGraph::threads)
      .def_prop_ro("plans", &CompiledGraph::plans);
}

}  // namespace atb
