// SPDX-License-Identifier: Apache-2.0
// Views around attention: tokens before heads and back, key heads that are repeated for their query heads.
#pragma once

#include <optional>
#include <vector>

#include "passes/engine/rewriter.h"

namespace atb {

// [B, heads..., T, D] -> [B, T, heads, D].
Value* tokens_first(Rewriter& rewriter, Value* x, const Dim& heads);
// [B, T, heads, D] -> [B, heads..., T, D].
Value* heads_first(Rewriter& rewriter, Value* x, const Shape& heads);
// The last two axes change places.
Value* swap_last(Rewriter& rewriter, Value* x);

// x in which each slice of `axis` comes several times in a row (0, 0, 1, 1), as grouped-query attention is written
// where it does not broadcast: [.., KV, ..] -> [.., KV, 1, ..] -> [.., KV, G, ..] -> [.., KV * G, ..].
struct Repeated {
  Value* source = nullptr;         // before the repetition
  Shape shape;                     // its shape with KV on the axis of x
  Dim heads = 1;                   // KV
  std::vector<const Node*> turns;  // transposes from there to x, the first first
};
std::optional<Repeated> find_repeated(Value* x, size_t axis);
// x with KV slices on its axis.
Value* without_repeats(Rewriter& rewriter, const Repeated& repeated);

}  // namespace atb
