// SPDX-License-Identifier: Apache-2.0
#include "passes/pattern_log.h"

#include "core/error.h"
#include "core/log.h"
#include "passes/engine/driver.h"
#include "passes/widen_floats.h"

namespace atb {
namespace {

// As the pipeline counts: with floats as wide as they will be.
std::unique_ptr<Graph> widened(const Graph& graph) {
  std::unique_ptr<Graph> copy = graph.clone();
  widen_floats(*copy);
  return copy;
}

}  // namespace

void PatternLog::start(const Graph& graph, const std::string& pattern) {
  if (report_.patterns.empty()) {
    const std::unique_ptr<Graph> plain = widened(graph);
    report_.before = measure_layers(*plain);
    report_.sketch_before = sketch_layer(*plain);
  }
  report_.patterns.push_back({pattern, {}, {}, 0, {}});
}

PatternResult& PatternLog::last() {
  require(!report_.patterns.empty(), Code::kFailedPrecondition, "[GraphOptimizer] no pattern has started");
  return report_.patterns.back();
}

void PatternLog::matched(int layer, const std::string& replacement) {
  PatternResult& result = last();
  ++result.matches;
  result.layers.insert(layer);
  result.replacement = replacement;
  log_match(result.name, replacement, layer);
}

void PatternLog::missed(int layer, const std::string& node, const std::string& constraint, const std::string& actual,
                        const std::string& expected) {
  report_.misses.push_back({last().name, layer, node, constraint, actual, expected});
  log(LogLevel::kDebug, "GraphOptimizer", report_.misses.back().str());
}

void PatternLog::finish(const Graph& graph) {
  last().cost = measure_layers(*widened(graph));
  report_.after = last().cost;
}

MatchReport joined(const MatchReport& first, const MatchReport& then) {
  if (first.patterns.empty()) return then;
  MatchReport whole = first;
  whole.after = then.after;
  whole.sketch_after = then.sketch_after;
  whole.stages = then.stages;
  whole.patterns.insert(whole.patterns.end(), then.patterns.begin(), then.patterns.end());
  whole.misses.insert(whole.misses.end(), then.misses.begin(), then.misses.end());
  return whole;
}

}  // namespace atb
