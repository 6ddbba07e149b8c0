// SPDX-License-Identifier: Apache-2.0
// Pass: dead code.
#pragma once

#include "ir/graph.h"

namespace atb {

// Removes nodes that no graph output depends on. Graph inputs stay. Returns the number of nodes removed.
int64_t eliminate_dead_code(Graph& graph);

}  // namespace atb
