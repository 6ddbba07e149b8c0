// SPDX-License-Identifier: Apache-2.0
// What Python patterns see of a graph, and the edits that they ask for.
#pragma once

#include <nanobind/nanobind.h>

#include "ir/graph.h"

namespace atb {

// Adds nodes() and fuse() to the class of graphs.
void bind_graph_nodes(nanobind::class_<Graph>& graph);

}  // namespace atb
