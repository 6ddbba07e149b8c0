// SPDX-License-Identifier: Apache-2.0
// Random plain operators on what a sketch offers.
#pragma once

#include <vector>

#include "fuzz/random_graphs/sketch.h"

namespace atb::random_graphs {

// Adds one operator, or a few that belong together (a comparison and its choice), and offers the results. Adds nothing
// where it finds no operand.
using AddOperator = void (*)(Sketch&);

const std::vector<AddOperator>& basic_operators();     // arithmetic, linear algebra, norms, views
const std::vector<AddOperator>& function_operators();  // elementwise functions and comparisons of floats
const std::vector<AddOperator>& piece_operators();     // slices, concatenations, broadcasts, reductions
const std::vector<AddOperator>& integer_operators();   // integers, booleans, casts, indices
const std::vector<AddOperator>& spelled_operators();   // norms and activations as chains of small operators

void add_random_operator(Sketch& sketch);

}  // namespace atb::random_graphs
