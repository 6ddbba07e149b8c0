// SPDX-License-Identifier: Apache-2.0
// What the optimizer did: kernels and bytes per layer before, after each pattern, and after all; and what did not
// match.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/dim.h"
#include "ir/graph.h"
#include "passes/engine/matcher.h"
#include "passes/stage_sketch.h"

namespace atb {

// Sums over the nodes that belong to a layer; a graph that numbers none counts as one layer. A kernel is a node that is
// no view; bytes follow node_bytes(). Intermediates are bytes of the results of kernels, but for the graph's outputs:
// what fusion keeps out of memory.
struct LayerCost {
  int64_t layers = 0;
  int64_t kernels = 0;
  Dim bytes = 0;
  Dim intermediates = 0;
};

LayerCost measure_layers(const Graph& graph);

// A node in a picture of a layer.
struct SketchNode {
  std::string name;
  std::string op;                   // of an external node: its target
  std::vector<std::string> inputs;  // names of what it reads: nodes of the layer, or values from outside; no constants
  Dim bytes = 0;
  bool view = false;  // no kernel
};

// One layer of a graph, or all of a graph that numbers none.
struct LayerSketch {
  int layer = -1;
  std::vector<SketchNode> nodes;  // in execution order
};

// Of the layer in the middle, which is as most are; at most 500 nodes.
LayerSketch sketch_layer(const Graph& graph);

// What pictures call a node: its operator, or the target of an external one.
const std::string& shown_op(const Node& node);

struct PatternResult {
  std::string name;
  std::string replacement;
  std::set<int> layers;  // with at least one match
  int64_t matches = 0;
  LayerCost cost;  // of the graph after this pattern: cumulative in the order applied
};

struct MatchReport {
  LayerCost before;
  LayerCost after;
  LayerSketch sketch_before;
  LayerSketch sketch_after;
  StageSketch stages;                   // as it runs
  std::vector<PatternResult> patterns;  // in the order applied
  // The deepest failure of each pattern at each layer, of those that say something: no match in that layer at all, or
  // more than the root fitted.
  std::vector<MatchFailure> misses;
  std::string text() const;  // lines for people
};

}  // namespace atb
