// SPDX-License-Identifier: Apache-2.0
// Convenience for making nodes: b("linear", {x, w}, {{"..", ..}}, "q"). Used by model families, patterns,
// decompositions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"

namespace atb {

// Appends nodes to a graph, or inserts them before a node; stamps layer and scope on each.
class Builder {
 public:
  explicit Builder(Graph& graph, Node* before = nullptr) : graph_(graph), before_(before) {}

  // The first output. Throws kNotFound for an unknown operator, kInvalidArgument for a bad call.
  Value* operator()(std::string_view op, std::vector<Value*> inputs, Attrs attrs = {}, std::string name = {});
  Node* node(std::string_view op, std::vector<Value*> inputs, Attrs attrs = {}, std::string name = {});

  Value* constant(const ConstantRef& constant) { return graph_.add_constant(constant); }
  Value* scalar(double value);  // f32 constant of shape []

  // View helpers over reshape / transpose.
  Value* reshape(Value* x, Shape shape, std::string name = {});
  Value* transpose(Value* x, std::vector<int64_t> perm, std::string name = {});

  void set_layer(int layer) { layer_ = layer; }
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  Graph& graph() { return graph_; }

 private:
  Graph& graph_;
  Node* before_;
  int layer_ = -1;
  std::string scope_;
};

}  // namespace atb
