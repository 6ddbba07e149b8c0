// SPDX-License-Identifier: Apache-2.0
// The one way passes edit a graph: build new nodes, say what replaces what, commit; or nothing changes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"

namespace atb {

// One transaction. Without a commit (an exception, a change of mind) the destructor removes what was built.
class Rewriter {
 public:
  // New nodes get the layer and scope of `anchor` and are placed before it; commit() moves them where the order of
  // execution needs them.
  Rewriter(Graph& graph, Node* anchor);
  ~Rewriter();
  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;

  Graph& graph() { return graph_; }
  // As Builder: the first output, or the node. kInvalidArgument if the operator's shape rule refuses.
  Value* value(std::string_view op, std::vector<Value*> inputs, Attrs attrs = {});
  Node* node(std::string_view op, std::vector<Value*> inputs, Attrs attrs = {});
  // The nodes of `body` on these inputs, with its layers and scopes where it has some; what stands for its outputs.
  std::vector<Value*> inlined(const Graph& body, std::span<Value* const> inputs);
  Value* constant(const ConstantRef& constant) { return graph_.add_constant(constant); }
  Value* reshape(Value* x, Shape shape);                  // x itself when the shape is the same
  Value* transpose(Value* x, std::vector<int64_t> perm);  // x itself for the identity

  // Every reader of `from`, graph outputs too, will read `to` instead; the new node's own inputs do as well.
  void replace(Value* from, Value* to);
  // Nodes that become dead by the replacements and go with them (others are left to dead code elimination).
  void retire(const std::vector<Node*>& nodes);
  // With them go the nodes that only they read, however far up, and what was built and is not read.
  void retire_producers() { retire_producers_ = true; }

  // Applies everything, or nothing and returns the reason: a replacement of another type, or one that would make a
  // value depend on itself. New values take the names of those they replace.
  std::optional<std::string> commit();
  // After commit: nodes that no longer exist. Compare addresses only.
  const std::unordered_set<const Node*>& erased() const { return erased_; }

 private:
  void roll_back();
  // True if the present order is an execution order after the replacements too: the common case, cheap to see.
  bool order_stays() const;
  // Execution order after the replacements, stable; empty if there is none.
  std::vector<Node*> order_after() const;
  Value* replacement(Value* value) const;
  void erase_retired();

  Graph& graph_;
  Builder builder_;
  std::vector<Node*> built_;
  std::vector<std::pair<Value*, Value*>> replacements_;
  std::unordered_map<const Value*, Value*> map_;
  std::vector<Node*> retired_;
  std::unordered_set<const Node*> erased_;
  bool committed_ = false;
  bool retire_producers_ = false;
};

}  // namespace atb
