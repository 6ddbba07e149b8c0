// SPDX-License-Identifier: Apache-2.0
// `atb explain`: kernels and bytes per layer before, after each pattern and after all, and what did not match.
#pragma once

#include <string>

#include "ir/graph.h"
#include "passes/pipeline.h"

namespace atb {

// JSON: {layers, tokens, kernels_per_layer {before, after}, bytes_per_layer {before, after},
// intermediate_bytes_per_layer {before, after}: written by one kernel for another, patterns [{name, layers_matched,
// kernels_per_layer, bytes_per_layer}] cumulative in the order applied, not_matched [{pattern, layer, node, constraint,
// actual, expected}]}. Averages over the nodes that belong to a layer, integers where exact; views
// are no kernels; sketch {layer, before, after}: the nodes {name, op, inputs, bytes, view} of the layer in the middle;
// stages {layer, total, side_by_side, drawn [{stage, nodes [{name, op}]}]}: which of them run side by side; bytes at
// `tokens` tokens of one sequence. kInvalidArgument for tokens < 1.
std::string explain_json(const MatchReport& report, int64_t tokens);

// The same for a plain graph, which is optimized on a copy.
std::string explain_json(const Graph& graph, int64_t tokens, const PipelineOptions& options = {});

}  // namespace atb
