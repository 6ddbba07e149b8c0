// SPDX-License-Identifier: Apache-2.0
// Building patterns, and the registry of all patterns.
#include "passes/engine/pattern.h"

#include <algorithm>

namespace atb {

void register_all_patterns(PatternRegistry& registry);  // generated

PatternId Pattern::add(PatternNode node) {
  if (find(node.name) >= 0) throw_error(Code::kInternal, "[pattern] ", name_, ": two nodes named ", node.name);
  nodes_.push_back(std::move(node));
  return static_cast<PatternId>(nodes_.size()) - 1;
}

PatternId Pattern::any(std::string name) { return add({.kind = PatternNode::Kind::kAny, .name = std::move(name)}); }

PatternId Pattern::constant(std::string name) {
  return add({.kind = PatternNode::Kind::kConstant, .name = std::move(name)});
}

PatternId Pattern::op(std::string name, std::vector<std::string> ops, std::vector<PatternId> inputs) {
  return add(
      {.kind = PatternNode::Kind::kOp, .name = std::move(name), .ops = std::move(ops), .inputs = std::move(inputs)});
}

PatternId Pattern::one_of(std::string name, std::vector<PatternId> alternatives) {
  return add(
      {.kind = PatternNode::Kind::kOneOf, .name = std::move(name), .ops = {}, .inputs = std::move(alternatives)});
}

PatternId Pattern::commutative(PatternId id) {
  nodes_.at(static_cast<size_t>(id)).commutative = true;
  return id;
}

PatternId Pattern::optional(PatternId id) {
  nodes_.at(static_cast<size_t>(id)).optional = true;
  return id;
}

PatternId Pattern::extra_output(PatternId id) {
  nodes_.at(static_cast<size_t>(id)).extra_output = true;
  return id;
}

PatternId Pattern::output(PatternId id, int index) {
  nodes_.at(static_cast<size_t>(id)).output = index;
  return id;
}

void Pattern::root(PatternId id) {
  if (node(id).kind != PatternNode::Kind::kOp) {
    throw_error(Code::kInternal, "[pattern] ", name_, ": root ", node(id).name, " is no operator");
  }
  roots_.push_back(id);
}

void Pattern::where(std::string constraint, std::function<std::optional<Mismatch>(const Match&)> check) {
  constraints_.push_back({std::move(constraint), std::move(check)});
}

PatternId Pattern::find(std::string_view name) const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].name == name) return static_cast<PatternId>(i);
  }
  return -1;
}

void PatternRegistry::add(Pattern pattern) {
  if (find(pattern.name()) != nullptr) {
    throw_error(Code::kInternal, "[pattern] ", pattern.name(), " is registered twice");
  }
  if (pattern.roots().empty() || !pattern.rewrite()) {
    throw_error(Code::kInternal, "[pattern] ", pattern.name(), " has no root or no rewrite");
  }
  patterns_.push_back(std::make_unique<Pattern>(std::move(pattern)));
  std::stable_sort(patterns_.begin(), patterns_.end(),
                   [](const auto& a, const auto& b) { return a->benefit() > b->benefit(); });
}

std::vector<const Pattern*> PatternRegistry::group(PatternGroup group) const {
  std::vector<const Pattern*> result;
  for (const auto& pattern : patterns_) {
    if (pattern->group() == group) result.push_back(pattern.get());
  }
  return result;
}

const Pattern* PatternRegistry::find(std::string_view name) const {
  for (const auto& pattern : patterns_) {
    if (pattern->name() == name) return pattern.get();
  }
  return nullptr;
}

std::vector<const Pattern*> PatternRegistry::all() const {
  std::vector<const Pattern*> result;
  for (const auto& pattern : patterns_) result.push_back(pattern.get());
  return result;
}

const PatternRegistry& PatternRegistry::instance() {
  static const PatternRegistry registry = [] {
    PatternRegistry filled;
    register_all_patterns(filled);
    return filled;
  }();
  return registry;
}

}  // namespace atb
