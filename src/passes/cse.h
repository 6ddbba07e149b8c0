// SPDX-License-Identifier: Apache-2.0
// Pass: common subexpressions.
#pragma once

#include "ir/graph.h"

namespace atb {

// Nodes of one operator with equal inputs and attributes become the first of them; it belongs to no layer (-1) if they
// were of different ones. Nodes with state stay. Returns the number of nodes removed.
int64_t eliminate_common_subexpressions(Graph& graph);

}  // namespace atb
