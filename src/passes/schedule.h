// SPDX-License-Identifier: Apache-2.0
// Groups the executed nodes of a graph into stages: nodes of one stage do not depend on each other and share the
// workers.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace atb {

struct Schedule {
  // Executed nodes (views are none), in execution order; a node's operands come from earlier stages.
  std::vector<std::vector<Node*>> stages;
  int64_t num_nodes() const;
};

// Each node goes to the first stage in which its operands are ready (A -> B -> D, A -> C -> D runs B and C together).
// Views that cannot alias (a reshape of a transposed value) are copies and count as executed nodes.
// Without side_by_side each is a stage of its own.
Schedule schedule(const Graph& graph, bool side_by_side = true);

// True if `view` aliases its input's storage: any transpose, and a reshape of densely laid out elements.
bool aliases_input(const Node& view);

// True if the elements of `value` lie densely in row-major order when views alias (see aliases_input).
bool is_dense(const Value& value);

// Reorders the graph's nodes stage by stage (views directly after their operand), for printing and atb-opt.
void apply_schedule(Graph& graph);

}  // namespace atb
