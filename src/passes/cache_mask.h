// SPDX-License-Identifier: Apache-2.0
// The mask of an attention that gets a cache: made for the keys of a call, it must say what all cached keys are.
#pragma once

#include "ir/graph.h"
#include "passes/engine/rewriter.h"

namespace atb {

// A mask [..., tokens] that broadcasts to [B, H, T, T] as [B or 1, H or 1, T or 1, S] over all S keys in the cache:
// what it is made of is followed through elementwise operators and views to slices x[..., S - tokens:] of a mask x
// [..., S], or to inputs of the graph, which then are masks of all keys (S = tokens). Null, and nothing is built that
// stays, where it is made of anything else.
Value* mask_over_cache(Rewriter& rewriter, Value* mask, const Dim& tokens);

}  // namespace atb
