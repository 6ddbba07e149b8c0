// SPDX-License-Identifier: Apache-2.0
// Picks the stages of one layer.
#include "passes/stage_sketch.h"

#include <algorithm>

#include "passes/engine/report.h"

namespace atb {

StageSketch sketch_stages(const Schedule& schedule, int layer) {
  constexpr size_t kMostStages = 500;
  StageSketch sketch{layer, static_cast<int64_t>(schedule.stages.size()), 0, {}};
  for (size_t number = 0; number < schedule.stages.size(); ++number) {
    const std::vector<Node*>& nodes = schedule.stages[number];
    if (nodes.size() > 1) ++sketch.side_by_side;
    const bool seen = std::any_of(nodes.begin(), nodes.end(), [&](const Node* n) { return n->layer() == layer; });
    if (!seen || sketch.drawn.size() == kMostStages) continue;
    DrawnStage& stage = sketch.drawn.emplace_back(DrawnStage{static_cast<int64_t>(number), {}});
    for (const Node* node : nodes) stage.nodes.push_back({node->name(), shown_op(*node)});
  }
  return sketch;
}

}  // namespace atb
