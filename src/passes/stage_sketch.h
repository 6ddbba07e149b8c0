// SPDX-License-Identifier: Apache-2.0
// What runs side by side, for reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/schedule.h"

namespace atb {

struct StageNode {
  std::string name;
  std::string op;  // of an external node: its target
};

struct DrawnStage {
  int64_t number = 0;  // in the graph
  std::vector<StageNode> nodes;
};

// The stages of the layer that a report draws (see LayerSketch), or of a graph that numbers none; at most 500.
struct StageSketch {
  int layer = -1;
  int64_t total = 0;         // stages of the graph
  int64_t side_by_side = 0;  // stages of the graph with several nodes
  std::vector<DrawnStage> drawn;
};

StageSketch sketch_stages(const Schedule& schedule, int layer);

}  // namespace atb
