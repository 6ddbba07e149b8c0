// SPDX-License-Identifier: Apache-2.0
// op-matrix: what this build has, from its registries: operators, encodings, patterns, passes and model families, and
// what runs each of the operator cases on this CPU.
// The generated pages of the documentation are made of its JSON.
//   op-matrix --json > matrix.json
//   op-matrix --markdown
#include <cstdio>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "core/encoding.h"
#include "core/error.h"
#include "devices/device.h"
#include "ir/op.h"
#include "ir/schema.h"
#include "kernels/target.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "ops/case_registry.h"
#include "ops/kernel_run.h"
#include "passes/engine/pattern.h"
#include "passes/registry.h"

namespace atb {
namespace {

using Json = nlohmann::ordered_json;

Json attr_json(const Attr& attr) {
  if (const auto* shape = std::get_if<Shape>(&attr)) return to_string(*shape);
  return std::visit(
      [](const auto& value) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Shape>)
          return nullptr;
        else
          return value;
      },
      attr);
}

// Who makes an operator, and whether it touches the cache: plain, fused, state, view.
std::string_view level(const OpDef& op) {
  if (op.is_view()) return "view";
  if (op.has_state) return "state";
  return op.fused ? "fused" : "plain";
}

Json inputs_json(const OpDef& op) {
  Json list = Json::array();
  for (const InputSpec& input : op.inputs) {
    list.push_back({{"name", input.name}, {"optional", input.optional}, {"variadic", input.variadic}});
  }
  return list;
}

// The input that an output shares its storage with, or may be written over; null where there is none.
Json outputs_json(const OpDef& op) {
  Json list = Json::array();
  const auto input = [&](int index) -> Json {
    return index < 0 ? Json(nullptr) : Json(op.inputs[static_cast<size_t>(index)].name);
  };
  for (const OutputSpec& output : op.outputs) {
    list.push_back(
        {{"name", output.name}, {"view_of", input(output.view_of)}, {"in_place_of", input(output.in_place_of)}});
  }
  return list;
}

Json attrs_json(const OpDef& op) {
  Json list = Json::array();
  for (const AttrSpec& attr : op.attrs) {
    Json entry{
        {"name", attr.name}, {"kind", attr_kind_name(attr.kind)}, {"required", attr.required}, {"doc", attr.doc}};
    entry["default"] = attr.required ? Json(nullptr) : attr_json(attr.default_value);
    list.push_back(std::move(entry));
  }
  return list;
}

std::vector<std::string_view> vector_targets() {
  std::vector<std::string_view> names = cpu_targets();
  std::erase(names, "SCALAR");
  std::erase(names, "SSE4");  // there for tests alone
  return names;
}

// What a user would call the stored form of an operand: "f32", "q4_1", "i32"; null where it is absent.
Json format_of(const Value* value) {
  if (value == nullptr) return nullptr;
  const Type& type = value->type();
  return type.encoding != nullptr ? type.encoding->name : std::string(dtype_name(type.dtype));
}

// The operator's cases: operand formats, precision, and by target the code that runs it ("decomposition" or "plain
// loops" where there is no kernel).
Json calls_json(const OpDef& op) {
  Json list = Json::array();
  for (const testing::SweptCase& swept : CaseRegistry::instance().all()) {
    if (swept.op != op.name) continue;
    const testing::OpCase test = swept.make(swept.sizes.back());
    Graph graph;
    const Node* node = testing::build_op_graph(graph, test);
    Json inputs = Json::array();
    for (const Value* input : node->inputs()) inputs.push_back(format_of(input));
    Json runs;
    for (const std::string_view target : vector_targets()) {
      force_cpu_target(target);
      PackedStore store;
      const std::unique_ptr<Kernel> kernel = testing::make_case_kernel(test, *node, store);
      runs[std::string(target)] = kernel != nullptr ? testing::KernelRun(test, *node, *kernel).variant()
                                  : op.is_view()    ? "nothing to do"
                                  : op.decompose    ? "decomposition"
                                                    : "plain loops";
    }
    force_cpu_target({});
    list.push_back({{"case", swept.name},
                    {"inputs", inputs},
                    {"precision", test.precision == Precision::kFast ? "fast" : "exact"},
                    {"tolerance", swept.tolerance},
                    {"tolerance_from", swept.why},
                    {"runs", runs}});
  }
  return list;
}

Json operators_json() {
  Json list = Json::array();
  for (const OpDef* op : OpRegistry::instance().all()) {
    list.push_back({{"name", op->name},
                    {"doc", op->doc},
                    {"level", level(*op)},
                    {"fused", op->fused},
                    {"state", op->has_state},
                    {"view", op->is_view()},
                    {"inputs", inputs_json(*op)},
                    {"outputs", outputs_json(*op)},
                    {"attrs", attrs_json(*op)},
                    {"cpu_kernel", static_cast<bool>(op->make_cpu_kernel)},
                    {"decomposition", static_cast<bool>(op->decompose)},
                    {"reference", static_cast<bool>(op->reference)},
                    {"calls", calls_json(*op)}});
  }
  return list;
}

Json encodings_json() {
  Json list = Json::array();
  for (const Encoding* encoding : encodings()) {
    const double bits = 8.0 * static_cast<double>(encoding->block_bytes) / static_cast<double>(encoding->block_elems);
    list.push_back({{"name", encoding->name},
                    {"block_elems", encoding->block_elems},
                    {"block_bytes", encoding->block_bytes},
                    {"bits_per_value", bits},
                    {"encoder", encoding->encode != nullptr}});
  }
  return list;
}

// "mul(silu(linear(x, gate weight)), linear(x, up weight))": a node of a pattern as an expression.
std::string form(const Pattern& pattern, PatternId id) {
  const PatternNode& node = pattern.node(id);
  if (node.kind == PatternNode::Kind::kAny || node.kind == PatternNode::Kind::kConstant) {
    return node.name + (node.optional ? "?" : "");
  }
  std::string text;
  for (const std::string& op : node.ops) text += (text.empty() ? "" : "|") + op;
  if (node.kind == PatternNode::Kind::kOneOf) text = "one of";
  std::string inputs;
  for (const PatternId input : node.inputs) inputs += (inputs.empty() ? "" : ", ") + form(pattern, input);
  return text + "(" + inputs + ")";
}

const char* when(PatternGroup group) {
  switch (group) {
    case PatternGroup::kFusion:
      return "canonical graph";
    case PatternGroup::kFurther:
      return "fused graph";
    case PatternGroup::kState:
      return "after insert-kv-cache";
  }
  return "";
}

Json patterns_json() {
  Json list = Json::array();
  for (const Pattern* pattern : PatternRegistry::instance().all()) {
    Json forms = Json::array();
    for (const PatternId root : pattern->roots()) forms.push_back(form(*pattern, root));
    Json constraints = Json::array();
    for (const Constraint& constraint : pattern->constraints()) constraints.push_back(constraint.name);
    list.push_back({{"name", pattern->name()},
                    {"replacement", pattern->replacement()},
                    {"benefit", pattern->benefit()},
                    {"when", when(pattern->group())},
                    {"doc", forms},
                    {"constraints", constraints}});
  }
  return list;
}

Json passes_json() {
  Json list = Json::array();
  for (const NamedPass& pass : PassRegistry::instance().all()) list.push_back({{"name", pass.name}, {"doc", pass.doc}});
  return list;
}

Json models_json() {
  Json list = Json::array();
  for (const ModelFamily& family : ModelRegistry::instance().all()) {
    Json weights = Json::array();
    for (const WeightName& weight : family.weight_names) {
      weights.push_back({{"name", weight.name}, {"hf", weight.hf}, {"gguf", weight.gguf}});
    }
    list.push_back({{"name", family.name},
                    {"hf_architectures", family.hf_architectures},
                    {"hf_model_types", family.hf_model_types},
                    {"gguf_architectures", family.gguf_architectures},
                    {"weights", weights}});
  }
  return list;
}

Json devices_json() {
  Json list = Json::array();
  for (const Device* device : devices())
    list.push_back({{"name", device->name()}, {"description", device->description()}});
  return list;
}

Json matrix() {
  Json targets = Json::array();
  for (const std::string_view target : vector_targets()) targets.push_back(target);
  return {{"targets", targets},          {"operators", operators_json()}, {"encodings", encodings_json()},
          {"patterns", patterns_json()}, {"passes", passes_json()},       {"models", models_json()},
          {"devices", devices_json()}};
}

std::string joined(const std::set<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

// One line an operator: its level, the stored forms of its matrices, its precisions, and what runs it on each target.
void print_markdown(std::ostream& out) {
  out << "| operator | level | operands | precisions | on the CPU |\n| --- | --- | --- | --- | --- |\n";
  for (const OpDef* op : OpRegistry::instance().all()) {
    std::set<std::string> formats, precisions, targets, others;
    for (const Json& call : calls_json(*op)) {
      for (const Json& input : call["inputs"]) {
        if (input.is_string() && input != "state") formats.insert(input.get<std::string>());
      }
      precisions.insert(call["precision"].get<std::string>());
      for (const auto& [target, variant] : call["runs"].items()) {
        const std::string code = variant.get<std::string>();
        const bool kernel = op->make_cpu_kernel && code != "decomposition" && code != "plain loops";
        kernel ? targets.insert(target) : others.insert(code);
      }
    }
    out << "| `" << op->name << "` | " << level(*op) << " | " << joined(formats) << " | " << joined(precisions) << " | "
        << (targets.empty() ? "" : "kernel: " + joined(targets)) << (targets.empty() || others.empty() ? "" : "; ")
        << joined(others) << " |\n";
  }
}

void run(const std::vector<std::string>& args) {
  const std::string usage = "usage: op-matrix --json | --markdown";
  require(args.size() == 1, Code::kInvalidArgument, usage);
  if (args[0] == "--json") {
    std::cout << matrix().dump(2) << "\n";
  } else if (args[0] == "--markdown") {
    print_markdown(std::cout);
  } else {
    throw_error(Code::kInvalidArgument, "[op-matrix] unknown option ", args[0], "; ", usage);
  }
}

}  // namespace
}  // namespace atb

int main(int argc, char** argv) {
  try {
    atb::run({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "op-matrix: %s\n", error.what());
    return 1;
  }
}
