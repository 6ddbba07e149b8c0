// SPDX-License-Identifier: Apache-2.0
// Puts a graph over symbols of its own into another one, as a declared block into the module that calls it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace atb {

// Makes the nodes of `body` in `graph` and returns what stands for its outputs.
//   inputs: stand for those of `body`, in order. Extents there are numbers or single symbols, which take what they are
//     here.
//   constants: stand for constants of `body` by name, of equal types; the others come along as they are.
//   layer, scope: of the nodes; scopes in `body` go behind `scope` and a dot.
// kInvalidArgument where a number of inputs, a dtype or an extent does not fit, naming the input.
std::vector<Value*> splice_graph(Graph& graph, const Graph& body, std::span<Value* const> inputs,
                                 const std::map<std::string, Value*, std::less<>>& constants, int layer,
                                 const std::string& scope);

}  // namespace atb
