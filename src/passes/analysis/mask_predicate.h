// SPDX-License-Identifier: Apache-2.0
// What an attention mask computes, whatever its spelling: a predicate of (query position, key position).
#pragma once

#include <cstdint>
#include <string>

#include "ir/graph.h"

namespace atb {

// A query at position p sees the keys s with ...
struct MaskPredicate {
  enum class Kind {
    kFull,     // any s
    kCausal,   // s <= p
    kWindow,   // p - window < s <= p
    kUnknown,  // no such form; `why` says what stopped the analysis
  };
  Kind kind = Kind::kUnknown;
  int64_t window = 0;
  std::string why;
};

// Reduces an additive mask (0 where a key is seen, -inf or below -1e30 where not) that broadcasts to scores
// [..., T, S] with T = S. Follows iota, reshape and transpose of it, add, sub, mul by constants, less_equal, where and
// constants; a constant mask is read. This is a proof: anything else is unknown. Boolean conditions over integers only.
MaskPredicate analyse_mask(const Value* mask, const Dim& queries, const Dim& keys);

}  // namespace atb
