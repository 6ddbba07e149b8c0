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
#include "api/kv_slots.h"
#include "bindings/arrays.h"
#include "bindings/graph_nodes.h"
#include "bindings/host_kernels.h"
#include "bindings/kv_cache.h"
#include "bindings/thread_count.h"
#include "core/error.h"
#include "core/trace.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "passes/explain.h"
#include "passes/pattern_log.h"
#include "passes/pipeline.h"
#include "runtime/profile.h"

namespace atb {
namespace {

namespace nb = nanobind;

// Name, dtype and shape of an input or output, as text: ("x", "f32", "[T, 576]").
using ValueText = std::tuple<std::string, std::string, std::string>;

ValueText text_of(const std::string& name, const Type& type) {
  return {name, std::string(dtype_name(type.dtype)), to_string(type.shape)};
}

bool is_state(const Value& value) { return value.type().dtype == DType::kState; }

// A caller neither gives nor gets the state of a compiled graph.
std::vector<const Value*> call_inputs(const CompiledGraph& compiled) {
  std::vector<const Value*> inputs;
  for (const Value* input : compiled.graph().inputs()) {
    if (!is_state(*input)) inputs.push_back(input);
  }
  return inputs;
}

std::vector<ValueText> inputs_of(const Graph& graph) {
  std::vector<ValueText> result;
  for (const Value* input : graph.inputs()) result.push_back(text_of(input->name(), input->type()));
  return result;
}

std::vector<ValueText> call_inputs_of(const CompiledGraph& compiled) {
  std::vector<ValueText> result;
  for (const Value* input : call_inputs(compiled)) result.push_back(text_of(input->name(), input->type()));
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

std::vector<ValueText> call_outputs_of(const CompiledGraph& compiled) {
  std::vector<ValueText> result = outputs_of(compiled.graph());
  if (!compiled.cached().empty()) result.pop_back();  // the state is the last
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

std::string optimize_json(Graph& graph, int64_t tokens, const PatternLog& earlier) {
  return explain_json(joined(earlier.report(), optimize(graph, {.cache = false})), tokens);
}

// What refuses a graph that cannot become an incremental step; the graph stays as it is.
void prove_incremental(const Graph& graph) { optimize(*graph.clone()); }

std::unique_ptr<CompiledGraph> compile(const Graph& graph, int64_t threads, const std::string& precision,
                                       const std::string& device, const nb::dict& kernels, const PatternLog& earlier,
                                       const std::vector<std::string>& cached, const std::string& kv_dtype,
                                       int64_t opt_level) {
  CompileOptions options{device,           precision, thread_count(threads),    host_kernels_from(kernels),
                         earlier.report(), cached,    kv_dtype_named(kv_dtype), opt_level};
  const nb::gil_scoped_release release;
  return std::make_unique<CompiledGraph>(graph.clone(), options);
}

std::vector<Tensor> run_traced(CompiledGraph& compiled, const nb::list& arrays, KvSlots* cache,
                               const std::vector<int64_t>& slots, Trace* trace) {
  const std::vector<const Value*> inputs = call_inputs(compiled);
  require(arrays.size() == inputs.size(), Code::kInvalidArgument, "[graph] ", compiled.graph().name(), ": ",
          arrays.size(), " inputs given, it takes ", inputs.size());
  using Borrowed = std::vector<BorrowedArray>;
  // Lent until this function returns, or as long as a kernel in Python holds on to them.
  const std::shared_ptr<Borrowed> borrowed(new Borrowed, [](const Borrowed* held) {
    const nb::gil_scoped_acquire acquire;
    delete held;
  });
  std::vector<TensorView> views;
  for (size_t i = 0; i < inputs.size(); ++i) {
    borrowed->push_back(borrow_array(arrays[i], "[graph] input " + inputs[i]->name()));
    views.push_back(borrowed->back().view);
  }
  const nb::gil_scoped_release release;
  return compiled.run(views, borrowed, {cache, slots}, trace);
}

std::vector<Tensor> run(CompiledGraph& compiled, const nb::list& arrays, KvSlots* cache,
                        const std::vector<int64_t>& slots) {
  return run_traced(compiled, arrays, cache, slots, nullptr);
}

// The outputs of a call, and what happened in it as JSON.
std::tuple<std::vector<Tensor>, std::string> profile_call(CompiledGraph& compiled, const nb::list& arrays,
                                                          KvSlots* cache, const std::vector<int64_t>& slots) {
  Trace trace;
  trace.enable();
  std::vector<Tensor> outputs = run_traced(compiled, arrays, cache, slots, &trace);
  return {std::move(outputs), profile_json(trace, true)};
}

}  // namespace

void bind_graph(nb::module_& module) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Graph> graphs(module, "Graph");
  nb::class_<PatternLog>(module, "PatternLog", "What patterns in Python do to a graph, for its report and the log.")
      .def(nb::init<>())
      .def(nb::init<const PatternLog&>())
      .def("start", &PatternLog::start, nb::arg("graph"), nb::arg("pattern"))
      .def("matched", &PatternLog::matched, nb::arg("layer"), nb::arg("replacement"))
      .def("missed", &PatternLog::missed, nb::arg("layer"), nb::arg("node"), nb::arg("constraint"), nb::arg("actual"),
           nb::arg("expected"))
      .def("finish", &PatternLog::finish, nb::arg("graph"));
  graphs
      .def_static("parse", &parse, nb::arg("text"), nb::arg("constants"),
                  nb::sig("def parse(text: str, constants: dict[str, typing.Any]) -> Graph"))
      .def(
          "bind",
          [](Graph& graph, const std::string& name, nb::handle array) {
            bind_constant(graph, constant_from_array(name, array));
          },
          nb::arg("name"), nb::arg("array"), nb::sig("def bind(self, name: str, array: typing.Any) -> None"),
          "Gives a constant its numbers: the array's own memory, which must not be changed while the graph lives.")
      .def("__str__", [](const Graph& graph) { return print(graph); })
      .def_prop_ro("name", &Graph::name)
      .def_prop_ro("inputs", &inputs_of)
      .def_prop_ro("outputs", &outputs_of)
      .def("copy", &Graph::clone, Release())
      .def("optimize_json", &optimize_json, nb::arg("tokens"), nb::arg("earlier"), Release(),
           "Rewrites the graph; the JSON of `atb explain`.")
      .def("prove_incremental", &prove_incremental, Release(),
           "Raises UnsupportedError, naming the operator, where a decoder cannot run token by token with a cache.")
      .def("compile", &compile, nb::arg("threads"), nb::arg("precision"), nb::arg("device"), nb::arg("kernels"),
           nb::arg("earlier"), nb::arg("cached") = std::vector<std::string>{}, nb::arg("kv_dtype") = "f32",
           nb::arg("opt_level") = 3,
           nb::sig("def compile(self, threads: int, precision: str, device: str, kernels: dict[str, typing.Any], "
                   "earlier: PatternLog, cached: list[str] = [], kv_dtype: str = 'f32', opt_level: int = 3) "
                   "-> CompiledGraph"));
  bind_graph_nodes(graphs);
  nb::class_<CompiledGraph>(module, "CompiledGraph")
      .def("run", &run, nb::arg("arrays"), nb::arg("cache") = nb::none(), nb::arg("slots") = std::vector<int64_t>{},
           nb::sig("def run(self, arrays: list[typing.Any], cache: KVCache | None = None, slots: list[int] = []) "
                   "-> list[Tensor]"))
      .def("profile", &profile_call, nb::arg("arrays"), nb::arg("cache") = nb::none(),
           nb::arg("slots") = std::vector<int64_t>{},
           nb::sig("def profile(self, arrays: list[typing.Any], cache: KVCache | None = None, slots: list[int] = []) "
                   "-> tuple[list[Tensor], str]"),
           "As `run`, with what happened in the call as JSON: launches, nodes, waits.")
      .def_prop_ro("cached_scopes",
                   [](const CompiledGraph& compiled) {
                     std::vector<std::string> scopes;
                     for (const CachedSlot& slot : compiled.cached()) scopes.push_back(slot.scope);
                     return scopes;
                   })
      .def("__str__", [](const CompiledGraph& compiled) { return print(compiled.graph()); })
      .def(
          "report_json",
          [](const CompiledGraph& compiled, int64_t tokens) { return explain_json(compiled.report(), tokens); },
          nb::arg("tokens"), Release())
      .def_prop_ro("inputs", &call_inputs_of)
      .def_prop_ro("outputs", &call_outputs_of)
      .def_prop_ro("threads", &CompiledGraph::threads)
      .def_prop_ro("plans", &CompiledGraph::plans, Release());
}

}  // namespace atb
