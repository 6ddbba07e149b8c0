// SPDX-License-Identifier: Apache-2.0
// Canonical form: one spelling of what graphs spell in many ways, so that each fusion pattern is written once.
#pragma once

#include "ir/graph.h"
#include "passes/engine/rewriter.h"

namespace atb {

// A normal form looks at one node; if it applies, it builds the replacement through the rewriter and returns true. None
// changes a result's bits except where its comment says so.
using NormalForm = bool (*)(const Node& node, Rewriter& rewriter);

// add(c, x) -> add(x, c), mul(c, x) -> mul(x, c) for a constant c and a computed x.
bool constants_right(const Node& node, Rewriter& rewriter);
// div(x, c) -> mul(x, 1 / c) for a one-element constant c whose reciprocal is exact (a power of two).
bool scale_by_mul(const Node& node, Rewriter& rewriter);
// reshape(reshape(x)) -> reshape(x).
bool reshape_of_reshape(const Node& node, Rewriter& rewriter);
// transpose(transpose(x)) -> transpose(x) by the combined permutation.
bool transpose_of_transpose(const Node& node, Rewriter& rewriter);
// A reshape to the same shape, a transpose that moves nothing (extents of 1 may change places): x.
bool identity_view(const Node& node, Rewriter& rewriter);
// softmax(where(c, x, -inf)) -> softmax(add(x, where(c, 0, -inf))), and with the branches the other way round: masks
// are added. Equal for finite x; where x is +inf or NaN under the mask, the sum is NaN.
bool masked_fill(const Node& node, Rewriter& rewriter);

// Applies all normal forms to a fixed point. Returns the number of rewrites.
int64_t canonicalize(Graph& graph);

}  // namespace atb
