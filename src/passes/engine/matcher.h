// SPDX-License-Identifier: Apache-2.0
// Matching: finds a pattern at a node without changing anything, or says what stopped it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "passes/engine/pattern.h"

namespace atb {

// A complete match: what each node of the pattern stands for.
class Match {
 public:
  explicit Match(const Pattern& pattern)
      : pattern_(&pattern), nodes_(pattern.nodes().size()), values_(pattern.nodes().size()) {}

  const Pattern& pattern() const { return *pattern_; }
  bool has(std::string_view name) const { return value(name) != nullptr; }
  // The bound value, or null for an absent optional one or an alternative that was not taken.
  Value* value(std::string_view name) const;
  // The bound operator node; null where value() is null or the pattern node is no operator.
  Node* node(std::string_view name) const;
  Node* root(size_t index = 0) const { return nodes_[static_cast<size_t>(pattern_->roots()[index])]; }
  // The matched operator nodes, each once.
  std::vector<Node*> nodes() const;
  // Layer of the root, or of the first matched node that has one; -1 if none has.
  int layer() const;

 private:
  friend class Matcher;
  const Pattern* pattern_;
  std::vector<Node*> nodes_;    // by PatternId
  std::vector<Value*> values_;  // by PatternId
};

// Why a pattern did not match at a node: the attempt that came furthest.
struct MatchFailure {
  std::string pattern;
  int layer = -1;
  std::string node;        // where in the graph
  std::string constraint;  // which part of the pattern
  std::string actual;
  std::string expected;
  int depth = 0;            // operator nodes matched before it stopped
  std::string str() const;  // "Pattern P not matched at layer L: node: constraint, found actual, needs expected"
};

struct MatchResult {
  std::optional<Match> match;
  MatchFailure failure;  // meaningful when there is no match
};

// Tries `pattern` with its first root at `root`. Backtracks over operand orders, alternatives and further roots.
MatchResult match_pattern(const Pattern& pattern, Node* root);

}  // namespace atb
