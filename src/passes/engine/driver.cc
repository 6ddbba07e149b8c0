// SPDX-License-Identifier: Apache-2.0
// The fixed point over patterns.
#include "passes/engine/driver.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "core/log.h"
#include "passes/engine/matcher.h"
#include "passes/engine/rewriter.h"

namespace atb {
namespace {

constexpr std::string_view kWhere = "GraphOptimizer";

class PatternRun {
 public:
  PatternRun(Graph& graph, const Pattern& pattern, PatternResult& result)
      : graph_(graph), pattern_(pattern), result_(result) {}

  // Sweeps over all nodes until one sweep changes nothing; that last one's failures are the misses.
  int64_t to_fixed_point() {
    // Each rewrite makes the graph smaller or at least moves it on; patterns that feed each other never end.
    const int64_t limit = 4 * static_cast<int64_t>(graph_.nodes().size()) + 64;
    int64_t total = 0;
    for (int64_t in_sweep = 1; in_sweep > 0;) {
      misses_.clear();
      in_sweep = sweep();
      total += in_sweep;
      if (total > limit) {
        throw_error(Code::kInternal, "[GraphOptimizer] pattern ", pattern_.name(), " does not settle: ", total,
                    " rewrites of ", limit, " allowed");
      }
    }
    return total;
  }

  // Deepest failure by layer.
  const std::map<int, MatchFailure>& misses() const { return misses_; }

 private:
  std::vector<Node*> candidates() const {
    const std::vector<std::string>& ops = pattern_.node(pattern_.roots()[0]).ops;
    std::vector<Node*> found;
    for (Node* node : graph_.nodes()) {
      if (std::find(ops.begin(), ops.end(), node->op_name()) != ops.end()) found.push_back(node);
    }
    return found;
  }

  int64_t sweep() {
    std::unordered_set<const Node*> gone;
    int64_t rewrites = 0;
    for (Node* node : candidates()) {
      if (gone.count(node) != 0) continue;
      const MatchResult result = match_pattern(pattern_, node);
      if (!result.match) {
        keep(result.failure);
        continue;
      }
      if (apply(*result.match, gone)) ++rewrites;
    }
    return rewrites;
  }

  bool apply(const Match& match, std::unordered_set<const Node*>& gone) {
    const int layer = match.layer();
    Rewriter rewriter(graph_, match.root());
    const std::string root = match.root()->name();
    std::optional<std::string> refused;
    try {
      pattern_.rewrite()(match, rewriter);
      rewriter.retire(match.nodes());
      refused = rewriter.commit();
    } catch (const Error& error) {
      if (error.code() == Code::kInternal) throw;
      refused = error.what();  // a shape rule said no: the rewriter takes back what was built
    }
    if (refused) {
      keep({.pattern = pattern_.name(),
            .layer = layer,
            .node = root,
            .constraint = "a valid replacement",
            .actual = *refused,
            .expected = "the same types and no cycle",
            .depth = static_cast<int>(pattern_.nodes().size())});
      return false;
    }
    gone.insert(rewriter.erased().begin(), rewriter.erased().end());
    ++result_.matches;
    result_.layers.insert(layer);
    log_match(pattern_.name(), pattern_.replacement(), layer);
    return true;
  }

  void keep(const MatchFailure& failure) {
    const auto [it, fresh] = misses_.emplace(failure.layer, failure);
    if (!fresh && failure.depth > it->second.depth) it->second = failure;
  }

  Graph& graph_;
  const Pattern& pattern_;
  PatternResult& result_;
  std::map<int, MatchFailure> misses_;
};

bool is_constraint(const Pattern& pattern, const std::string& name) {
  const std::vector<Constraint>& all = pattern.constraints();
  return std::any_of(all.begin(), all.end(), [&](const Constraint& constraint) { return constraint.name == name; });
}

void report_misses(const Pattern& pattern, const PatternResult& result, const std::map<int, MatchFailure>& misses,
                   MatchReport& report) {
  for (const auto& [layer, miss] : misses) {
    // A root that is everyday (a mul, a matmul) fails all over a layer where the pattern did match: that says nothing.
    if (pattern.is_rare() && !is_constraint(pattern, miss.constraint)) continue;
    if (miss.depth < 2 && (layer < 0 || result.layers.count(layer) != 0)) continue;
    log(LogLevel::kDebug, kWhere, miss.str());
    report.misses.push_back(miss);
  }
}

// A rare pattern that neither matched nor nearly did is no news.
void leave_out_idle(const std::vector<const Pattern*>& patterns, size_t first, MatchReport& report) {
  for (size_t i = patterns.size(); i-- > 0;) {
    const auto result = report.patterns.begin() + static_cast<std::ptrdiff_t>(first + i);
    const bool missed = std::any_of(report.misses.begin(), report.misses.end(),
                                    [&](const MatchFailure& miss) { return miss.pattern == result->name; });
    if (patterns[i]->is_rare() && result->matches == 0 && !missed) report.patterns.erase(result);
  }
}

}  // namespace

void log_match(const std::string& pattern, const std::string& replacement, int layer) {
  log(LogLevel::kInfo, kWhere, "Pattern " + pattern + " matched at layer " + std::to_string(layer));
  log(LogLevel::kInfo, kWhere, "Replaced with " + replacement);
}

int64_t apply_patterns(Graph& graph, const std::vector<const Pattern*>& patterns, MatchReport& report) {
  const size_t first = report.patterns.size();
  for (const Pattern* pattern : patterns) {
    report.patterns.push_back({pattern->name(), pattern->replacement(), {}, 0, {}});
  }
  std::vector<std::map<int, MatchFailure>> misses(patterns.size());
  int64_t total = 0;
  constexpr int kMaxRounds = 16;
  for (int round = 0;; ++round) {
    int64_t in_round = 0;
    for (size_t i = 0; i < patterns.size(); ++i) {
      PatternResult& result = report.patterns[first + i];
      PatternRun run(graph, *patterns[i], result);
      const int64_t rewrites = run.to_fixed_point();
      misses[i] = run.misses();
      if (rewrites > 0 || round == 0) result.cost = measure_layers(graph);
      in_round += rewrites;
    }
    total += in_round;
    if (in_round == 0) break;
    if (round == kMaxRounds) {
      throw_error(Code::kInternal, "[GraphOptimizer] patterns do not settle within ", kMaxRounds, " rounds");
    }
  }
  for (size_t i = 0; i < patterns.size(); ++i)
    report_misses(*patterns[i], report.patterns[first + i], misses[i], report);
  leave_out_idle(patterns, first, report);
  return total;
}

}  // namespace atb
