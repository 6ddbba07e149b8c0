// SPDX-License-Identifier: Apache-2.0
// Merging the weights and biases of several linears that read one x: what it needs, and the merged constants.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "passes/engine/matcher.h"
#include "passes/engine/rewriter.h"

namespace atb {

// Adds the constraints that the linears of these pattern nodes can be merged. The weight of linear "q" is the pattern
// node "q weight", its bias "q bias" (may be absent): weights of one type read by no other node, biases likewise.
void require_mergeable(Pattern& pattern, const std::vector<std::string>& linears);

// Rows of all weights one after another; no bytes are copied.
Value* merged_weight(Rewriter& rewriter, const Match& match, const std::vector<std::string>& linears);
// The biases one after another, zeros for a linear without; null if none has one.
Value* merged_bias(Rewriter& rewriter, const Match& match, const std::vector<std::string>& linears);

// What the merged form of several dotted names is called: {"l.0.q.weight", "l.0.k.weight"} gives "l.0.q_k.weight".
std::string merged_name(const std::vector<std::string>& names);

}  // namespace atb
