// SPDX-License-Identifier: Apache-2.0
// Shape rules held against the extents of a call: what a rule left open for symbols is decided here.
#pragma once

#include "core/dim.h"
#include "ir/graph.h"

namespace atb {

// Runs every node's shape rule again on the extents that `bindings` give. A rule can only refuse what is wrong for all
// values of a symbol when the graph is made; kernels rely on the rest. kInvalidArgument names the node, what does not
// fit, and the symbols' values.
void check_bound_shapes(const Graph& graph, const Bindings& bindings);

}  // namespace atb
