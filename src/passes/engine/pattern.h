// SPDX-License-Identifier: Apache-2.0
// Patterns as data: a DAG of any / constant / operator nodes with named constraints, a rewrite and a benefit.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace atb {

class Match;
class Rewriter;

// Index of a node in its pattern.
using PatternId = int;

// One node of a pattern. Names are what reasons and rewrites call it by ("gate", "gate weight").
struct PatternNode {
  enum class Kind {
    kAny,       // any value
    kConstant,  // any constant
    kOp,        // a value made by one of `ops`, its inputs matching `inputs`
    kOneOf,     // the first of the alternatives `inputs` that matches the same value
  };
  Kind kind = Kind::kAny;
  std::string name;
  std::vector<std::string> ops = {};
  std::vector<PatternId> inputs = {};
  bool commutative = false;   // the first two inputs may come in either order
  bool optional = false;      // an optional input of the operator that may be absent
  bool extra_output = false;  // the rewrite provides this value, so it may be read outside the pattern
  int output = 0;             // which output of the operator (kAnyOutput: whichever is read)
};
constexpr int kAnyOutput = -1;

// What a constraint found where, and what it needs instead.
struct Mismatch {
  const Node* node = nullptr;
  std::string actual;
  std::string expected;
};

// A condition on a structurally complete match; returns nothing when it holds.
struct Constraint {
  std::string name;
  std::function<std::optional<Mismatch>(const Match&)> check;
};

// When a pattern runs: on the canonical graph; on the fused one, once its views are canonical again (what such a
// pattern takes, no pattern of the first group wanted); or after insert_kv_cache.
enum class PatternGroup { kFusion, kFurther, kState };

// Built once, then immutable:
//   Pattern p("GateUp", "FusedGateUp", 200);
//   const PatternId x = p.any("x");
//   const PatternId gate = p.op("gate", {"linear"}, {x, p.constant("gate weight"), p.optional(p.constant("gate
//   bias"))});
//   ...
//   p.root(p.commutative(p.op("product", {"mul"}, {activation, up})));
class Pattern {
 public:
  // `replacement` is the name users see in "Replaced with ..."; patterns with a higher benefit are applied first.
  Pattern(std::string name, std::string replacement, int benefit, PatternGroup group = PatternGroup::kFusion)
      : name_(std::move(name)), replacement_(std::move(replacement)), benefit_(benefit), group_(group) {}

  PatternId any(std::string name);
  PatternId constant(std::string name);
  PatternId op(std::string name, std::vector<std::string> ops, std::vector<PatternId> inputs);
  PatternId one_of(std::string name, std::vector<PatternId> alternatives);
  // Each marks the node and returns it.
  PatternId commutative(PatternId id);
  PatternId optional(PatternId id);
  PatternId extra_output(PatternId id);
  PatternId output(PatternId id, int index);

  // Adds a root (an operator node). The first is where matching starts; each further one must share a value with those
  // before it, and is searched for among the readers of the shared value.
  void root(PatternId id);
  void where(std::string constraint, std::function<std::optional<Mismatch>(const Match&)> check);
  // Marks a pattern that few graphs have a use for: misses are reported only where a constraint was what failed, and
  // reports leave it out where it neither matched nor missed.
  void rare() { rare_ = true; }
  // Builds the replacement through the rewriter. Called only with a complete match; the driver commits.
  void rewrite(std::function<void(const Match&, Rewriter&)> fn) { rewrite_ = std::move(fn); }

  const std::string& name() const { return name_; }
  const std::string& replacement() const { return replacement_; }
  int benefit() const { return benefit_; }
  PatternGroup group() const { return group_; }
  bool is_rare() const { return rare_; }
  const std::vector<PatternNode>& nodes() const { return nodes_; }
  const PatternNode& node(PatternId id) const { return nodes_[static_cast<size_t>(id)]; }
  PatternId find(std::string_view name) const;  // -1 if there is none
  const std::vector<PatternId>& roots() const { return roots_; }
  const std::vector<Constraint>& constraints() const { return constraints_; }
  const std::function<void(const Match&, Rewriter&)>& rewrite() const { return rewrite_; }

 private:
  PatternId add(PatternNode node);

  std::string name_;
  std::string replacement_;
  int benefit_;
  PatternGroup group_;
  bool rare_ = false;
  std::vector<PatternNode> nodes_;
  std::vector<PatternId> roots_;
  std::vector<Constraint> constraints_;
  std::function<void(const Match&, Rewriter&)> rewrite_;
};

// Patterns of this build, highest benefit first.
class PatternRegistry {
 public:
  void add(Pattern pattern);  // kInternal on a duplicate name, no root or no rewrite
  std::vector<const Pattern*> group(PatternGroup group) const;
  const Pattern* find(std::string_view name) const;  // null if none
  std::vector<const Pattern*> all() const;
  // The process-wide registry, filled once by generated code (register_all_patterns.cc).
  static const PatternRegistry& instance();

 private:
  std::vector<std::unique_ptr<Pattern>> patterns_;
};

}  // namespace atb
