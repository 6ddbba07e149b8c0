// SPDX-License-Identifier: Apache-2.0
// Runs any graph on reference kernels (or decompositions): the oracle.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/reference.h"

namespace atb {

// Inputs by name; symbols are bound from their shapes (a contradiction is kInvalidArgument naming input, actual,
// expected). State inputs may be omitted: a fresh empty state is made. Outputs in graph order; a state output carries
// the state for the next call. `sequences` describes a ragged step; empty means none is needed, or one sequence of all
// rows with no past.
template <class T>
std::vector<RefTensor<T>> interpret(const Graph& graph, const std::map<std::string, RefTensor<T>>& inputs,
                                    const std::vector<RefSequence>& sequences = {});

extern template std::vector<RefTensor<float>> interpret(const Graph&, const std::map<std::string, RefTensor<float>>&,
                                                        const std::vector<RefSequence>&);
extern template std::vector<RefTensor<double>> interpret(const Graph&, const std::map<std::string, RefTensor<double>>&,
                                                         const std::vector<RefSequence>&);

}  // namespace atb
