// SPDX-License-Identifier: Apache-2.0
// Backtracking matcher. Each step takes a continuation ("match the rest"), so that a later failure undoes it.
#include "passes/engine/matcher.h"

#include <algorithm>
#include <set>

#include "core/join.h"
#include "ir/op.h"

namespace atb {

Value* Match::value(std::string_view name) const {
  const PatternId id = pattern_->find(name);
  if (id < 0) throw_error(Code::kInternal, "[pattern] ", pattern_->name(), " has no node ", name);
  return values_[static_cast<size_t>(id)];
}

Node* Match::node(std::string_view name) const {
  const PatternId id = pattern_->find(name);
  if (id < 0) throw_error(Code::kInternal, "[pattern] ", pattern_->name(), " has no node ", name);
  return nodes_[static_cast<size_t>(id)];
}

std::vector<Node*> Match::nodes() const {
  std::vector<Node*> result;
  for (Node* node : nodes_) {
    if (node != nullptr && std::find(result.begin(), result.end(), node) == result.end()) result.push_back(node);
  }
  return result;
}

int Match::layer() const {
  if (root()->layer() >= 0) return root()->layer();
  for (const Node* node : nodes_) {
    if (node != nullptr && node->layer() >= 0) return node->layer();
  }
  return -1;
}

std::string MatchFailure::str() const {
  return "Pattern " + pattern + " not matched at layer " + std::to_string(layer) + ": " + node + ": " + constraint +
         ", found " + actual + ", needs " + expected;
}

namespace {

// "linear", "constant @w", "input %x": what a reader of a reason sees at the place of a value.
std::string describe(const Value* value) {
  if (value == nullptr) return "no input";
  if (value->is_constant()) return "constant @" + value->name();
  if (value->is_input()) return "input %" + value->name();
  return value->producer()->op_name();
}

}  // namespace

class Matcher {
 public:
  explicit Matcher(const Pattern& pattern) : pattern_(pattern), match_(pattern) {}

  MatchResult run(Node* root) {
    failure_.pattern = pattern_.name();
    failure_.layer = root->layer();
    failure_.depth = -1;
    start_ = root;
    MatchResult result;
    const PatternNode& first = pattern_.node(pattern_.roots()[0]);
    const size_t output = static_cast<size_t>(std::max(first.output, 0));
    if (match_value(pattern_.roots()[0], root->output(output), root, [this] { return match_root(1); })) {
      result.match = std::move(match_);
    } else {
      result.failure = std::move(failure_);
    }
    return result;
  }

 private:
  using Rest = std::function<bool()>;

  // Keeps the failure that came furthest; the first of equals, as operands are tried in the order users read them.
  bool fail(const Node* where, std::string constraint, std::string actual, std::string expected, int bonus = 0) {
    if (depth_ + bonus <= failure_.depth) return false;
    failure_.depth = depth_ + bonus;
    failure_.node = (where == nullptr ? start_ : where)->name();
    failure_.constraint = std::move(constraint);
    failure_.actual = std::move(actual);
    failure_.expected = std::move(expected);
    return false;
  }

  Value*& bound(PatternId id) { return match_.values_[static_cast<size_t>(id)]; }
  Node*& bound_node(PatternId id) { return match_.nodes_[static_cast<size_t>(id)]; }

  // Matches pattern node `id` against `value`, read by `reader`; then the rest.
  bool match_value(PatternId id, Value* value, const Node* reader, const Rest& rest) {
    const PatternNode& want = pattern_.node(id);
    if (value == nullptr) {
      if (want.optional) return rest();
      return fail(reader, want.name, "no input", "one");
    }
    if (bound(id) != nullptr) {
      if (bound(id) == value) return rest();
      return fail(reader, "same " + want.name, "%" + value->name(), "%" + bound(id)->name());
    }
    switch (want.kind) {
      case PatternNode::Kind::kAny:
        return bind_and(id, value, rest);
      case PatternNode::Kind::kConstant:
        if (!value->is_constant()) return fail(reader, want.name, describe(value), "a constant");
        return bind_and(id, value, rest);
      case PatternNode::Kind::kOneOf:
        bound(id) = value;
        for (PatternId alternative : want.inputs) {
          if (match_value(alternative, value, reader, rest)) return true;
        }
        bound(id) = nullptr;
        return false;
      case PatternNode::Kind::kOp:
        return match_op(id, value, reader, rest);
    }
    return false;
  }

  bool bind_and(PatternId id, Value* value, const Rest& rest) {
    bound(id) = value;
    if (rest()) return true;
    bound(id) = nullptr;
    return false;
  }

  bool match_op(PatternId id, Value* value, const Node* reader, const Rest& rest) {
    const PatternNode& want = pattern_.node(id);
    Node* node = value->producer();
    if (node == nullptr || std::find(want.ops.begin(), want.ops.end(), node->op_name()) == want.ops.end()) {
      return fail(reader, want.name, describe(value), join(want.ops, " or "));
    }
    if (want.output != kAnyOutput && value->output_index() != want.output) {
      return fail(node, want.name, "output " + std::to_string(value->output_index()),
                  "output " + std::to_string(want.output));
    }
    const auto& taken = match_.nodes_;
    if (std::find(taken.begin(), taken.end(), node) != taken.end()) return false;  // stands for another node already
    bound(id) = value;
    bound_node(id) = node;
    ++depth_;
    if (match_inputs(want, node, rest)) return true;
    --depth_;
    bound(id) = nullptr;
    bound_node(id) = nullptr;
    return false;
  }

  bool match_inputs(const PatternNode& want, Node* node, const Rest& rest) {
    for (size_t i = want.inputs.size(); i < node->inputs().size(); ++i) {
      if (node->input(i) != nullptr) {
        return fail(node, want.name, std::to_string(node->inputs().size()) + " inputs",
                    std::to_string(want.inputs.size()));
      }
    }
    if (match_inputs_from(want, node, 0, false, rest)) return true;
    return want.commutative && node->input(0) != node->input(1) && match_inputs_from(want, node, 0, true, rest);
  }

  bool match_inputs_from(const PatternNode& want, Node* node, size_t index, bool swapped, const Rest& rest) {
    if (index == want.inputs.size()) return rest();
    const size_t actual = swapped && index < 2 ? 1 - index : index;
    return match_value(want.inputs[index], node->input(actual), node,
                       [&, index] { return match_inputs_from(want, node, index + 1, swapped, rest); });
  }

  // Further roots are looked for among the readers of what is bound already, through operators of the pattern only.
  bool match_root(size_t index) {
    if (index == pattern_.roots().size()) return check();
    const PatternId id = pattern_.roots()[index];
    if (bound(id) != nullptr) return match_root(index + 1);
    std::set<PatternId> below;
    collect_below(id, below);
    std::vector<Node*> candidates;
    std::string shared;
    for (PatternId leaf : below) {  // one shared value reaches them all: the first that the pattern declares
      const Value* value = bound(leaf);
      if (value == nullptr || pattern_.node(leaf).kind != PatternNode::Kind::kAny) continue;
      shared = value->name();
      collect_readers(value, below, pattern_.node(id), candidates);
      break;
    }
    sort_by_position(candidates);
    bool tried = false;
    for (Node* candidate : candidates) {
      if (std::find(match_.nodes_.begin(), match_.nodes_.end(), candidate) != match_.nodes_.end()) continue;
      tried = true;
      if (match_value(id, candidate->output(0), nullptr, [&, index] { return match_root(index + 1); })) return true;
    }
    if (!tried) {
      fail(nullptr, pattern_.node(id).name, "none that reads %" + shared, join(pattern_.node(id).ops, " or "));
    }
    return false;
  }

  void collect_below(PatternId id, std::set<PatternId>& out) const {
    if (!out.insert(id).second) return;
    for (PatternId input : pattern_.node(id).inputs) collect_below(input, out);
  }

  void collect_readers(const Value* value, const std::set<PatternId>& below, const PatternNode& root,
                       std::vector<Node*>& out) const {
    std::set<const Node*> seen;
    std::vector<const Value*> open = {value};
    for (size_t step = 0; step < below.size() && !open.empty(); ++step) {
      std::vector<const Value*> next;
      for (const Value* at : open) {
        for (const Use& use : at->uses()) {
          if (!names_operator(below, use.node) || !seen.insert(use.node).second) continue;
          if (std::find(root.ops.begin(), root.ops.end(), use.node->op_name()) != root.ops.end()) {
            out.push_back(use.node);
          }
          for (const Value* result : use.node->outputs()) next.push_back(result);
        }
      }
      open = std::move(next);
    }
  }

  bool names_operator(const std::set<PatternId>& ids, const Node* node) const {
    return std::any_of(ids.begin(), ids.end(), [&](PatternId id) {
      const auto& ops = pattern_.node(id).ops;
      return std::find(ops.begin(), ops.end(), node->op_name()) != ops.end();
    });
  }

  static void sort_by_position(std::vector<Node*>& nodes) {
    if (nodes.size() < 2) return;
    const Graph* graph = nodes[0]->graph();
    std::sort(nodes.begin(), nodes.end(),
              [graph](const Node* a, const Node* b) { return graph->position(a) < graph->position(b); });
  }

  // Structure is complete: constraints, then that no value that disappears is read outside.
  bool check() {
    const int structure = static_cast<int>(pattern_.nodes().size());
    int passed = 0;
    for (const Constraint& constraint : pattern_.constraints()) {
      const std::optional<Mismatch> mismatch = constraint.check(match_);
      if (mismatch) {
        return fail(mismatch->node, constraint.name, mismatch->actual, mismatch->expected, structure + passed);
      }
      ++passed;
    }
    for (size_t id = 0; id < match_.nodes_.size(); ++id) {
      if (match_.nodes_[id] != nullptr && !check_interior(static_cast<PatternId>(id), structure + passed)) return false;
    }
    return true;
  }

  bool check_interior(PatternId id, int bonus) {
    const auto& roots = pattern_.roots();
    const PatternNode& want = pattern_.node(id);
    if (want.extra_output || std::find(roots.begin(), roots.end(), id) != roots.end()) return true;
    const Node* node = bound_node(id);
    for (const Value* value : node->outputs()) {
      if (node->graph()->is_output(value)) {
        return fail(node, want.name + " read only inside the pattern", "a graph output", "no other reader", bonus);
      }
      for (const Use& use : value->uses()) {
        if (std::find(match_.nodes_.begin(), match_.nodes_.end(), use.node) == match_.nodes_.end()) {
          return fail(node, want.name + " read only inside the pattern", "also read by " + use.node->name(),
                      "no other reader", bonus);
        }
      }
    }
    return true;
  }

  const Pattern& pattern_;
  Match match_;
  MatchFailure failure_;
  const Node* start_ = nullptr;
  int depth_ = 0;
};

MatchResult match_pattern(const Pattern& pattern, Node* root) { return Matcher(pattern).run(root); }

}  // namespace atb
