// SPDX-License-Identifier: Apache-2.0
// Memory planning of a graph: which values need a buffer, how long each lives, which are written in place, and where
// each buffer lies in one arena.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ir/graph.h"
#include "passes/schedule.h"

namespace atb {

struct BufferPlan {
  std::map<const Value*, int64_t> offsets;  // of every value that has a buffer of its own in the arena
  int64_t num_buffers = 0;                  // values written in place of another share its buffer
  int64_t arena_bytes = 0;
  int64_t lower_bound_bytes = 0;  // largest set of buffers alive at once: no plan can be smaller
};

// Values made by executed nodes get a buffer, but for state and for graph outputs that a node makes directly (those are
// written to the caller's memory). A buffer lives from the stage that writes it to the last stage that reads it through
// any view. `largest` binds every symbol to its largest value.
// Without `share` every value keeps a place of its own to the end.
BufferPlan assign_buffers(const Graph& graph, const Schedule& schedule, const Bindings& largest, bool share = true);

// Parses "T=64,L=8". kInvalidArgument for anything else.
Bindings parse_bindings(std::string_view text);

}  // namespace atb
