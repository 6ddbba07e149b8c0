// SPDX-License-Identifier: Apache-2.0
// The order in which a plain graph becomes an optimized one.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/engine/report.h"
#include "passes/opt_level.h"

namespace atb {

struct PipelineOptions {
  bool cache = true;  // make a step graph over a KV cache; else the graph keeps its inputs and outputs
  bool widen = true;  // halves are computed in f32; off where a graph is only counted, in the types that it says
  // Scopes of causal attentions that get a KV cache (see cache_attention), slot 0 first; the graph keeps its other
  // inputs and outputs. Not together with `cache`.
  std::vector<std::string> cached_scopes{};
  // How far to go. A cache is only inserted into a canonical graph whose attention is fused, so with one the levels
  // below kFused do that and no more.
  OptLevel level = OptLevel::kPlanned;
  std::set<std::string> disabled_patterns{};  // by user name; kNotFound for an unknown one
#ifdef NDEBUG
  bool verify = false;  // after every pass
#else
  bool verify = true;
#endif
  // Called after every pass with its name, so that a wrong result can be traced to the pass that made it. Null:
  // nothing.
  std::function<void(const Graph& graph, const char* pass)> after_pass{};
};

// Optimizes in place and tells what happened. kUnsupported if a cache is wanted and cannot be inserted.
MatchReport optimize(Graph& graph, const PipelineOptions& options = {});

}  // namespace atb
