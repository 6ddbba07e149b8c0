// SPDX-License-Identifier: Apache-2.0
// What users' patterns ask for: a set of nodes as one external node with its own kernel, or as other operators; and
// definitions of external nodes put back in.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/engine/rewriter.h"

namespace atb {

// What takes the place of a set of nodes.
struct ExternalSpec {
  std::string target;  // the name of the new operator
  std::string kernel;  // the kernel that computes it; empty: its definition does
  // Empty: what enters the nodes, in the order in which they read it, but for numbers (constants of rank 0), which
  // stay in the definition; and what of theirs is read outside or returned, in the order in which it is made.
  std::vector<Value*> inputs;
  std::vector<Value*> outputs;
};

// Replaces `nodes` by one external node whose definition they become. Returns the reason why not, and leaves the graph
// as it is, where a value is read outside the nodes but is no output, a value that they read is no input, or a node
// between them would come before and after. `made` is the new node. kInvalidArgument for an empty set, or for inputs
// and outputs that are none of these nodes.
std::optional<std::string> fuse_external(Graph& graph, const std::vector<Node*>& nodes, const ExternalSpec& spec,
                                         Node** made = nullptr);

// Replaces `outputs`, made by `nodes`, by the values that `build` makes, as many. Returns the reason why not, and
// leaves the graph as it is, where another value of theirs is read outside, a type differs, or a value would depend on
// itself.
std::optional<std::string> replace_nodes(Graph& graph, const std::vector<Node*>& nodes,
                                         const std::vector<Value*>& outputs,
                                         const std::function<std::vector<Value*>(Rewriter&)>& build);

// Puts the definitions of external nodes that have no kernel in their place. Returns how many.
int64_t expand_externals(Graph& graph);

}  // namespace atb
