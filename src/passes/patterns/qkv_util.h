// SPDX-License-Identifier: Apache-2.0
// What the patterns that make one product of q, k and v share: QKV+RoPE and QKV.
#pragma once

#include <string>

#include "passes/engine/matcher.h"
#include "passes/engine/pattern.h"
#include "passes/engine/rewriter.h"

namespace atb {

// linear(x, "NAME weight", "NAME bias"), all of its values may be read elsewhere.
PatternId projection(Pattern& p, const std::string& name, PatternId x);

// projection -> (norm of all heads) -> heads -> (norm of each head), as "maybe NAME norm". Every value on the way
// stays, so all may be read elsewhere. A lone head is there without a reshape where x has an axis of one in its place.
PatternId projected_heads(Pattern& p, const std::string& name, PatternId x);

// Adds the constraints that the projections "q", "k" and "v" of "x" can be merged.
void require_qkv(Pattern& p);

// Puts one merged_matmul in their place.
void merge_qkv(Rewriter& rewriter, const Match& match);

}  // namespace atb
