// SPDX-License-Identifier: Apache-2.0
#include "bindings/block.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/attrs.h"
#include "blocks/block.h"
#include "blocks/item.h"
#include "core/error.h"

namespace atb {
namespace {

namespace nb = nanobind;

// Name, shape, how it starts ("zeros", "ones", "uniform", "normal") and the scale of that.
using ParameterTuple = std::tuple<std::string, std::vector<int64_t>, std::string, double>;
// Scope, heads of keys and values, features of a head.
using CachedTuple = std::tuple<std::string, int64_t, int64_t>;
using BuiltTuple =
    std::tuple<std::unique_ptr<Graph>, std::vector<ParameterTuple>, std::vector<CachedTuple>, std::vector<std::string>>;
// Point, kernel before, kernel after, prefix of the nested block, whether the kernels are told of the call, and as what
// layer.
using PluginTuple = std::tuple<std::string, std::string, std::string, std::string, bool, int64_t>;

std::vector<BlockItem> items_from(const nb::list& list);

BlockItem item_from(const nb::dict& given) {
  BlockItem item;
  item.kind = nb::cast<std::string>(given["kind"]);
  item.name = nb::cast<std::string>(given["name"]);
  const auto attrs = nb::cast<nb::dict>(given["attrs"]);
  const ItemDef& def = ItemRegistry::instance().get(item.kind);
  const std::string target = attrs.contains("target") ? nb::cast<std::string>(nb::str(attrs["target"])) : "";
  item.attrs = attrs_from_python(item.kind, attrs_of_item(def, target), attrs, "[GraphOp]");
  for (const nb::handle branch : nb::cast<nb::list>(given["branches"])) {
    item.branches.push_back(items_from(nb::cast<nb::list>(branch)));
  }
  return item;
}

std::vector<BlockItem> items_from(const nb::list& list) {
  std::vector<BlockItem> items;
  for (const nb::handle item : list) items.push_back(item_from(nb::cast<nb::dict>(item)));
  return items;
}

DType dtype_named(const std::string& name, const std::string& what) {
  const std::optional<DType> dtype = dtype_from_name(name);
  require(dtype.has_value(), Code::kInvalidArgument, "[GraphOp] ", what, ": there is no dtype ", name);
  return *dtype;
}

Dim ranged(const Dim& dim) {
  SymbolRanges used;
  collect_symbols(dim, used);
  std::map<std::string, Dim, std::less<>> symbols;
  for (const auto& [name, range] : used) symbols.emplace(name, block_symbol(name));
  return dim.substitute(symbols);
}

BlockCall call_from(const nb::list& inputs, const std::string& dtype) {
  BlockCall call;
  call.dtype = dtype_named(dtype, "parameters");
  for (const nb::handle entry : inputs) {
    const auto input = nb::cast<nb::tuple>(entry);
    auto name = nb::cast<std::string>(input[0]);
    Type type{dtype_named(nb::cast<std::string>(input[1]), name), {}};
    for (const nb::handle extent : nb::cast<nb::sequence>(input[2])) {
      type.shape.push_back(ranged(dim_from_python(extent, "[GraphOp] " + name)));
    }
    call.inputs.emplace_back(std::move(name), std::move(type));
  }
  return call;
}

const char* init_name(ParameterInit::Kind kind) {
  constexpr const char* kNames[] = {"zeros", "ones", "uniform", "normal"};
  return kNames[static_cast<size_t>(kind)];
}

BuiltTuple build(const Block& block, const nb::list& inputs, const std::string& dtype,
                 const std::vector<PluginTuple>& plugins, std::map<std::string, std::vector<int64_t>> shapes) {
  BlockCall call = call_from(inputs, dtype);
  call.shapes = std::move(shapes);
  for (const auto& [point, before, after, within, told, layer] : plugins) {
    call.plugins.push_back({point, before, after, within, told, layer});
  }
  BlockGraph built = block.graph(call);
  std::vector<ParameterTuple> parameters;
  for (BlockParameter& parameter : built.parameters) {
    parameters.emplace_back(std::move(parameter.name), std::move(parameter.shape), init_name(parameter.init.kind),
                            parameter.init.scale);
  }
  std::vector<CachedTuple> cached;
  for (CachedAttention& one : built.cached) cached.emplace_back(std::move(one.scope), one.kv_heads, one.head_dim);
  return {std::move(built.graph), std::move(parameters), std::move(cached), std::move(built.warnings)};
}

std::vector<std::tuple<std::string, std::string, std::string>> item_kinds() {
  std::vector<std::tuple<std::string, std::string, std::string>> kinds;
  for (const ItemDef& def : ItemRegistry::instance().all()) kinds.emplace_back(def.kind, def.group, def.doc);
  return kinds;
}

}  // namespace

void bind_block(nb::module_& module) {
  nb::class_<Block>(module, "Block", "A declared block: a list of items, each a dict of kind, name, attrs, branches.")
      .def(
          "__init__", [](Block* self, const nb::list& items) { new (self) Block(items_from(items)); }, nb::arg("items"),
          nb::sig("def __init__(self, items: list[dict[str, typing.Any]]) -> None"))
      .def(
          "build", &build, nb::arg("inputs"), nb::arg("dtype"), nb::arg("plugins") = std::vector<PluginTuple>(),
          nb::arg("shapes") = std::map<std::string, std::vector<int64_t>>(),
          nb::sig("def build(self, inputs: list[tuple[str, str, list[int | str]]], dtype: str, plugins: "
                  "list[tuple[str, str, str, str, bool, int]] = [], shapes: dict[str, list[int]] = {}) -> tuple[Graph, "
                  "list[tuple[str, list[int], str, float]], list[tuple[str, int, int]], list[str]]"),
          "For inputs (name, dtype, shape over B, T, S) and the parameters' dtype: the plain graph with absent "
          "constants; the parameters, each with its initialization; cached attentions (scope, kv heads, head "
          "size); warnings. plugins: point, name of a kernel before its item, of one after it, prefix of the nested "
          "block that it is a point of, whether the kernels are told of the call (atb_context), as which layer. "
          "shapes: of "
          "parameters that have theirs; the first item that needs another one is named.")
      .def_prop_ro("plugin_points", &Block::plugin_points, "pre_X and post_X for the items' names and kinds.")
      .def_prop_ro("parameter_names", &Block::parameter_names)
      .def_prop_ro("cached", &Block::cached, "Whether an attention keeps a cache.")
      .def(
          "has", [](const Block& block, const std::string& kind) { return block.has(kind); }, nb::arg("kind"));
  module.def("item_kinds", &item_kinds, "Kind, group and description of every item.");
}

}  // namespace atb
