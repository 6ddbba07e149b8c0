// SPDX-License-Identifier: Apache-2.0
// The report as JSON.
#include "passes/explain.h"

#include <nlohmann/json.hpp>

namespace atb {
namespace {

using Json = nlohmann::ordered_json;

Json per_layer(int64_t sum, int64_t layers) {
  if (sum % layers == 0) return sum / layers;
  return static_cast<double>(sum) / static_cast<double>(layers);
}

// T is the tokens; whatever else a graph has symbols for (sequences, rows of logits) counts as one.
Bindings bind_tokens(const MatchReport& report, int64_t tokens) {
  SymbolRanges symbols;
  collect_symbols(report.before.bytes, symbols);
  collect_symbols(report.after.bytes, symbols);
  collect_symbols(report.before.intermediates, symbols);
  collect_symbols(report.after.intermediates, symbols);
  for (const PatternResult& pattern : report.patterns) collect_symbols(pattern.cost.bytes, symbols);
  for (const LayerSketch* sketch : {&report.sketch_before, &report.sketch_after}) {
    for (const SketchNode& node : sketch->nodes) collect_symbols(node.bytes, symbols);
  }
  Bindings bindings;
  for (const auto& [symbol, range] : symbols) bindings.emplace(symbol, symbol == "T" ? tokens : 1);
  return bindings;
}

Json sketch_json(const LayerSketch& sketch, const Bindings& bindings) {
  Json nodes = Json::array();
  for (const SketchNode& node : sketch.nodes) {
    nodes.push_back({{"name", node.name},
                     {"op", node.op},
                     {"inputs", node.inputs},
                     {"bytes", node.bytes.eval(bindings)},
                     {"view", node.view}});
  }
  return nodes;
}

Json stages_json(const StageSketch& sketch) {
  Json drawn = Json::array();
  for (const DrawnStage& stage : sketch.drawn) {
    Json nodes = Json::array();
    for (const StageNode& node : stage.nodes) nodes.push_back({{"name", node.name}, {"op", node.op}});
    drawn.push_back({{"stage", stage.number}, {"nodes", std::move(nodes)}});
  }
  return {{"layer", sketch.layer}, {"total", sketch.total}, {"side_by_side", sketch.side_by_side}, {"drawn", drawn}};
}

}  // namespace

std::string explain_json(const MatchReport& report, int64_t tokens) {
  require(tokens >= 1, Code::kInvalidArgument, "[explain] tokens: ", tokens, "; needs 1 or more");
  const int64_t layers = report.before.layers;
  require(layers >= 1, Code::kInvalidArgument, "[explain] the graph has no layers");
  const Bindings bindings = bind_tokens(report, tokens);
  const auto kernels = [&](const LayerCost& cost) { return per_layer(cost.kernels, layers); };
  const auto bytes = [&](const LayerCost& cost) { return per_layer(cost.bytes.eval(bindings), layers); };

  Json json;
  json["layers"] = layers;
  json["tokens"] = tokens;
  json["kernels_per_layer"] = {{"before", kernels(report.before)}, {"after", kernels(report.after)}};
  json["bytes_per_layer"] = {{"before", bytes(report.before)}, {"after", bytes(report.after)}};
  const auto intermediates = [&](const LayerCost& cost) {
    return per_layer(cost.intermediates.eval(bindings), layers);
  };
  json["intermediate_bytes_per_layer"] = {{"before", intermediates(report.before)},
                                          {"after", intermediates(report.after)}};
  json["patterns"] = Json::array();
  for (const PatternResult& pattern : report.patterns) {
    json["patterns"].push_back({{"name", pattern.name},
                                {"layers_matched", pattern.layers.size()},
                                {"kernels_per_layer", kernels(pattern.cost)},
                                {"bytes_per_layer", bytes(pattern.cost)}});
  }
  json["not_matched"] = Json::array();
  for (const MatchFailure& miss : report.misses) {
    json["not_matched"].push_back({{"pattern", miss.pattern},
                                   {"layer", miss.layer},
                                   {"node", miss.node},
                                   {"constraint", miss.constraint},
                                   {"actual", miss.actual},
                                   {"expected", miss.expected}});
  }
  json["stages"] = stages_json(report.stages);
  json["sketch"] = {{"layer", report.sketch_after.layer},
                    {"before", sketch_json(report.sketch_before, bindings)},
                    {"after", sketch_json(report.sketch_after, bindings)}};
  return json.dump();
}

std::string explain_json(const Graph& graph, int64_t tokens, const PipelineOptions& options) {
  const std::unique_ptr<Graph> copy = graph.clone();
  PipelineOptions counted = options;
  counted.widen = false;
  return explain_json(optimize(*copy, counted), tokens);
}

}  // namespace atb
