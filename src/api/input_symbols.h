// SPDX-License-Identifier: Apache-2.0
// Values of a graph's symbols from the shapes of its inputs.
#pragma once

#include <span>
#include <vector>

#include "core/tensor.h"
#include "ir/graph.h"

namespace atb {

// Symbols of all types in the graph with their ranges.
SymbolRanges graph_symbols(const Graph& graph);

// Checks inputs against the graph's input types and solves for the symbols in their shapes. kInvalidArgument
// "[graph] input x: ..." with actual and expected, where count, rank, dtype, an extent or a range does not fit.
Bindings bind_symbols(const Graph& graph, std::span<const TensorView> inputs);

// kInvalidArgument unless bind_symbols can find every symbol of the graph.
void require_bindable(const Graph& graph);

}  // namespace atb
