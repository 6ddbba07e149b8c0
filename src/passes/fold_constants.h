// SPDX-License-Identifier: Apache-2.0
// Pass: what depends on constants alone is computed now.
#pragma once

#include "ir/graph.h"
#include "passes/engine/rewriter.h"

namespace atb {

// Replaces nodes whose inputs are all present, plain constants by their results (of at most 1 MiB each), computed in
// f32 by the interpreter. Operators without inputs (iota) stay: masks are recognised by them. Returns the number
// folded.
int64_t fold_constants(Graph& graph);

// The same for one node: builds the constants and returns true, or returns false.
bool fold_node(const Node& node, Rewriter& rewriter);

}  // namespace atb
