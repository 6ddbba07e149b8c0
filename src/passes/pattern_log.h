// SPDX-License-Identifier: Apache-2.0
// What becomes of patterns that are applied from outside the engine: lines of the log, and their part of the report.
#pragma once

#include <string>

#include "ir/graph.h"
#include "passes/engine/report.h"

namespace atb {

// Follows patterns that code of the user applies to one graph, one after another, before the passes do.
class PatternLog {
 public:
  // A pattern starts, on the graph as it is now.
  void start(const Graph& graph, const std::string& pattern);
  // Of the pattern that started last.
  void matched(int layer, const std::string& replacement);
  void missed(int layer, const std::string& node, const std::string& constraint, const std::string& actual,
              const std::string& expected);
  // It has ended; the graph is what it left.
  void finish(const Graph& graph);

  const MatchReport& report() const { return report_; }

 private:
  PatternResult& last();
  MatchReport report_;
};

// One report of what happened first and of what happened then.
MatchReport joined(const MatchReport& first, const MatchReport& then);

}  // namespace atb
