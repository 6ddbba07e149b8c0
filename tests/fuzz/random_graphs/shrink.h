// SPDX-License-Identifier: Apache-2.0
// Makes a failing graph small while it still fails in the same way.
#pragma once

#include <functional>
#include <memory>

#include "fuzz/random_graphs/sketch.h"

namespace atb::random_graphs {

struct Shrunk {
  std::unique_ptr<Graph> graph;
  Inputs inputs;
};

// `fails` is called on smaller and smaller graphs: with fewer outputs, with nodes left out at the end, and with nodes
// replaced by inputs of the numbers they gave. Every graph is a valid one that runs on its inputs.
Shrunk shrink(const Graph& graph, const Inputs& inputs, const std::function<bool(const Graph&, const Inputs&)>& fails);

}  // namespace atb::random_graphs
