// SPDX-License-Identifier: Apache-2.0
// Applies patterns to a graph, the highest benefit first, to a fixed point.
#pragma once

#include <string>
#include <vector>

#include "passes/engine/pattern.h"
#include "passes/engine/report.h"

namespace atb {

// Applies each pattern wherever it matches, in the given order, and again until no pattern changes anything. Logs each
// match (info) and each telling miss (debug); appends one result a pattern, and the misses, to `report`.
// kInternal if the patterns keep undoing each other. Returns the number of rewrites.
int64_t apply_patterns(Graph& graph, const std::vector<const Pattern*>& patterns, MatchReport& report);

// Logs "Pattern P matched at layer L" and "Replaced with R".
void log_match(const std::string& pattern, const std::string& replacement, int layer);

}  // namespace atb
