// SPDX-License-Identifier: Apache-2.0
// Where the time of a trace went: the same record that a trace file shows, summed by node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trace.h"

namespace atb {

// One node, or the like nodes of all layers. Times in microseconds, over all steps of the phase.
struct ProfileRow {
  std::string name;     // "layers.*.mlp.down", or the node's own name
  std::string op;       // operator
  std::string variant;  // the code that ran; several are joined by ", "
  bool in_layers = false;
  int64_t count = 0;     // executions: nodes times steps
  double wall_us = 0;    // of the caller (worker 0) inside it
  double wait_us = 0;    // of the caller, waiting for parts of it that others had
  double worker_us = 0;  // of all workers inside it
};

// Steps of one kind. The caller's time is split without a rest: rows, waiting for nodes, waiting for the last worker,
// elsewhere.
struct PhaseProfile {
  std::string name;  // "decode" or "prefill"; "call" of a compiled graph
  int64_t steps = 0;
  int64_t launches = 0;           // of the workers: one a step, and one more behind each host kernel
  int64_t tokens = 0;             // rows of all steps
  double wall_us = 0;             // from the start of a step to the start of the next of its kind
  std::vector<ProfileRow> rows;   // in order of execution
  int64_t waits = 0;              // of all workers
  double wait_us = 0;             // of the caller, at the ends of groups and of steps
  double worker_wait_us = 0;      // of all workers
  int64_t wakeups = 0;            // workers that started into a step
  int64_t wakeups_from_park = 0;  // of them, asleep
  double wakeup_us = 0;           // from launch to start, all workers together
  double sampling_us = 0;         // the following are of the caller, and make up `elsewhere`
  double between_us = 0;          // outside of steps: Python, other callers
  double rest_us = 0;             // planning, launching, bookkeeping
  double elsewhere_us() const { return sampling_us + between_us + rest_us; }
};

// Steps are the events of category "step" ("decode", "prefill", "call") with those of categories "launch", "node",
// "wait", "wake" and "sample" inside them. Steps that did not fit into the trace as a whole are left out. `each_node`:
// one row a node instead of one for the like nodes of all layers.
std::vector<PhaseProfile> profile(const Trace& trace, bool each_node = false);

// {"decode": {...}, "prefill": {...}, "dropped_events": n}; times in ms a phase and us a mean, shares of the phase.
std::string profile_json(const Trace& trace, bool each_node = false);

}  // namespace atb
