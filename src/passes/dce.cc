// SPDX-License-Identifier: Apache-2.0
// Dead code, in one sweep from the end.
#include "passes/dce.h"

#include "passes/engine/rewriter.h"

namespace atb {

int64_t eliminate_dead_code(Graph& graph) {
  const size_t before = graph.nodes().size();
  Rewriter rewriter(graph, nullptr);
  rewriter.retire(graph.nodes());  // takes those without readers, last first
  rewriter.commit();
  return static_cast<int64_t>(before - graph.nodes().size());
}

}  // namespace atb
