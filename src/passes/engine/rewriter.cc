// SPDX-License-Identifier: Apache-2.0
// Transactional edits: checked as a whole before the first change.
#include "passes/engine/rewriter.h"

#include <algorithm>
#include <numeric>

#include "ir/inline.h"

namespace atb {

Rewriter::Rewriter(Graph& graph, Node* anchor) : graph_(graph), builder_(graph, anchor) {
  if (anchor != nullptr) {
    builder_.set_layer(anchor->layer());
    builder_.set_scope(anchor->scope());
  }
}

Rewriter::~Rewriter() {
  if (!committed_) roll_back();
}

Node* Rewriter::node(std::string_view op, std::vector<Value*> inputs, Attrs attrs) {
  Node* made = builder_.node(op, std::move(inputs), std::move(attrs));
  built_.push_back(made);
  return made;
}

Value* Rewriter::value(std::string_view op, std::vector<Value*> inputs, Attrs attrs) {
  return node(op, std::move(inputs), std::move(attrs))->output();
}

std::vector<Value*> Rewriter::inlined(const Graph& body, std::span<Value* const> inputs) {
  return inline_graph(graph_, body, inputs, [this](const Node& like, std::vector<Value*> operands) {
    Node* made = node(like.op_name(), std::move(operands), like.attrs());
    if (like.layer() >= 0) made->set_layer(like.layer());
    if (!like.scope().empty()) made->set_scope(like.scope());
    return made;
  });
}

Value* Rewriter::reshape(Value* x, Shape shape) {
  if (x->shape() == shape) return x;
  return value("reshape", {x}, {{"shape", std::move(shape)}});
}

Value* Rewriter::transpose(Value* x, std::vector<int64_t> perm) {
  std::vector<int64_t> identity(perm.size());
  std::iota(identity.begin(), identity.end(), 0);
  if (perm == identity) return x;
  return value("transpose", {x}, {{"perm", std::move(perm)}});
}

void Rewriter::replace(Value* from, Value* to) {
  if (from == to) return;
  replacements_.emplace_back(from, to);
  map_[from] = to;
}

void Rewriter::retire(const std::vector<Node*>& nodes) { retired_.insert(retired_.end(), nodes.begin(), nodes.end()); }

Value* Rewriter::replacement(Value* value) const {
  const auto it = map_.find(value);
  return it == map_.end() ? value : it->second;
}

std::optional<std::string> Rewriter::commit() {
  for (const auto& [from, to] : replacements_) {
    if (!(from->type() == to->type())) {
      std::string reason = "replacing %" + from->name() + " : " + from->type().str() + " by " + to->type().str();
      roll_back();
      return reason;
    }
  }
  const bool stays = order_stays();
  std::vector<Node*> order = stays ? std::vector<Node*>() : order_after();
  if (order.empty() && !stays) {
    std::string reason = "the replacement of %" + replacements_[0].first->name() + " would depend on itself";
    roll_back();
    return reason;
  }
  committed_ = true;
  for (const auto& [from, to] : replacements_) graph_.replace_all_uses(from, to);
  if (!stays) graph_.set_order(std::move(order));
  std::vector<std::pair<Node*, std::pair<Value*, std::string>>> names;
  for (const auto& [from, to] : replacements_) {
    const bool built = std::find(built_.begin(), built_.end(), to->producer()) != built_.end();
    if (built) names.push_back({to->producer(), {to, from->name()}});
  }
  erase_retired();
  for (auto& [node, named] : names) {
    if (erased_.count(node) == 0) graph_.rename(named.first, std::move(named.second));
  }
  return std::nullopt;
}

void Rewriter::roll_back() {
  for (auto it = built_.rbegin(); it != built_.rend(); ++it) graph_.erase(*it);
  built_.clear();
  replacements_.clear();
  map_.clear();
  committed_ = true;
}

bool Rewriter::order_stays() const {
  const auto precedes = [this](const Value* value, const Node* reader) {
    return value->producer() == nullptr || graph_.position(value->producer()) < graph_.position(reader);
  };
  for (const Node* node : built_) {
    for (Value* input : node->inputs()) {
      if (input != nullptr && !precedes(replacement(input), node)) return false;
    }
  }
  return std::all_of(replacements_.begin(), replacements_.end(), [&](const auto& pair) {
    const std::vector<Use>& uses = pair.first->uses();
    return std::all_of(uses.begin(), uses.end(), [&](const Use& use) { return precedes(pair.second, use.node); });
  });
}

// Depth first in the old order, producers before readers: nodes only move forward to where they are needed. A node met
// again while its producers are being visited closes a cycle. Iterative, as graphs can be deep.
std::vector<Node*> Rewriter::order_after() const {
  enum class State { kNew, kOpen, kDone };
  std::unordered_map<const Node*, State> states;
  std::vector<Node*> order;
  std::vector<std::pair<Node*, size_t>> stack;  // node, next input
  for (Node* start : graph_.nodes()) {
    if (states[start] == State::kDone) continue;
    states[start] = State::kOpen;
    stack.assign(1, {start, 0});
    while (!stack.empty()) {
      Node* node = stack.back().first;
      if (stack.back().second == node->inputs().size()) {
        states[node] = State::kDone;
        order.push_back(node);
        stack.pop_back();
        continue;
      }
      Value* input = node->input(stack.back().second++);
      Node* producer = input == nullptr ? nullptr : replacement(input)->producer();
      if (producer == nullptr || states[producer] == State::kDone) continue;
      if (states[producer] == State::kOpen) return {};
      states[producer] = State::kOpen;
      stack.emplace_back(producer, 0);
    }
  }
  return order;
}

void Rewriter::erase_retired() {
  if (retire_producers_) retired_.insert(retired_.end(), built_.begin(), built_.end());
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = retired_.size(); i-- > 0;) {
      Node* node = retired_[i];
      if (erased_.count(node) != 0) continue;
      const bool dead = std::all_of(node->outputs().begin(), node->outputs().end(), [this](const Value* value) {
        return value->uses().empty() && !graph_.is_output(value);
      });
      if (!dead) continue;
      for (const Value* input : node->inputs()) {
        const bool made = retire_producers_ && input != nullptr && input->producer() != nullptr;
        if (made) retired_.push_back(input->producer());
      }
      graph_.erase(node);
      erased_.insert(node);
      changed = true;
    }
  }
}

}  // namespace atb
