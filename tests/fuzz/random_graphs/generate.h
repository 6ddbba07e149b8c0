// SPDX-License-Identifier: Apache-2.0
// Random graphs: plain operators, shared values, views, and planted fusions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fuzz/random_graphs/fusions.h"

namespace atb::random_graphs {

struct RandomGraph {
  uint64_t seed = 0;
  std::unique_ptr<Graph> graph;
  std::vector<Plant> plants;  // those that are computed for some output
  Inputs inputs;
  Inputs other_inputs;  // of other extents
  bool rounds = false;  // passes compute some constants in f32: the optimized graph is near, not equal in f64
};

// The same graph for the same seed, everywhere.
RandomGraph generate(uint64_t seed);

// A graph of one plant alone, with this flaw (empty: whole).
RandomGraph generate_plant(uint64_t seed, const PlantKind& kind, const std::string& flaw);

}  // namespace atb::random_graphs
