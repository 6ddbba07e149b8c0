// SPDX-License-Identifier: Apache-2.0
// Checks a graph's invariants: schemas, types as inferred, single definition before use, use lists, linear state.
#pragma once

#include "ir/graph.h"

namespace atb {

// Throws kInternal "[verifier] after <what>: node: problem" at the first violation.
void verify(const Graph& graph, std::string_view what);

}  // namespace atb
