// SPDX-License-Identifier: Apache-2.0
// flash_attention taken apart into its steps, for patterns that put them together in another way.
#pragma once

#include "passes/engine/rewriter.h"

namespace atb {

// Results of block_attention: [P, B, T, H, D] and twice [P, B, T, H], or without P where they are gone on from.
struct AttentionPartials {
  Value* output = nullptr;
  Value* max = nullptr;
  Value* sum = nullptr;
};

// qkv_load and block_attention of q [B, T, H, D] over k and v [B or 1, S, KV, D]; `mask` may be null; `earlier`
// results, if they are there, are gone on from.
AttentionPartials attend_block(Rewriter& rewriter, Value* q, Value* k, Value* v, Value* mask, const Attrs& attrs,
                               const AttentionPartials& earlier = {});
// The one partial result of axis 0, without that axis.
AttentionPartials only_partial(Rewriter& rewriter, const AttentionPartials& partials);
// The finished output [B, T, H, D].
Value* finish_attention(Rewriter& rewriter, const AttentionPartials& partials);
// Elements [begin, end) of an axis; x itself where that is all.
Value* part_of(Rewriter& rewriter, Value* x, int64_t axis, const Dim& begin, const Dim& end);

}  // namespace atb
