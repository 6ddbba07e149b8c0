// SPDX-License-Identifier: Apache-2.0
// Tells what is wrong with a random graph in as few nodes as will do.
#pragma once

#include <string>

#include "fuzz/random_graphs/check.h"

namespace atb::random_graphs {

// The seed, what failed, the first pass that changes numbers, and the shrunk graph as text.
std::string explain(const RandomGraph& random, const Failure& failure);

}  // namespace atb::random_graphs
