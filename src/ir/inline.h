// SPDX-License-Identifier: Apache-2.0
// Puts the nodes of one graph into another.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"

namespace atb {

// Makes the node that stands for `like`, on these inputs.
using MakeNode = std::function<Node*(const Node& like, std::vector<Value*> inputs)>;

// Makes the nodes of `body` in `graph`, with `inputs` in the place of its inputs, and returns what stands for its
// outputs. kInvalidArgument where the number of inputs differs, or where an operator's shape rule refuses their types.
std::vector<Value*> inline_graph(Graph& graph, const Graph& body, std::span<Value* const> inputs, const MakeNode& make);

// The same through a builder. Names are kept as far as they are free; layers and scopes are the builder's.
std::vector<Value*> inline_graph(Builder& builder, const Graph& body, std::span<Value* const> inputs);

}  // namespace atb
