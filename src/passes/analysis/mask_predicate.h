// SPDX-License-Identifier: Apache-2.0
// What an attention mask computes, whatever its spelling: a predicate of (batch, query position, key position).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace atb {

// A boolean value [B or 1, S]: which keys of each sequence are there.
struct KeyPadding {
  Value* present = nullptr;
  bool negated = false;  // true marks the keys that are not
};

// Integers [B or 1, T] (or those with unit axes, or [T]): the number of the sequence that each position belongs to.
struct Packing {
  Value* segments = nullptr;
  Dim batch = 1;  // B or 1
};

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
  // ... and in all of these.
  std::vector<KeyPadding> padding;
  // ... and of the same sequence as p by all of these.
  std::vector<Packing> packing;
  // Hidden keys have exactly -inf, so a row that sees none gives 0; otherwise finite numbers, and such a row gives a
  // mean of all values. Causal rows see themselves; it matters beside padding.
  bool infinite = false;
  std::string why;

  // Batch is the first axis of the mask: it must have all axes of the scores.
  bool by_batch() const;
  bool causal() const { return kind == Kind::kCausal || kind == Kind::kWindow; }
};

// Reduces an additive mask (0 where a key is seen, -inf or at most kHidden where not) that broadcasts to scores
// [B, ..., T, S] with T = S. This is a proof (passes/analysis/index_forms.h), but for what kHidden takes scores to be
// (passes/analysis/forms.h): anything else is unknown. A constant mask is read.
//
// Packed sequences may count positions anew: where P counts up by 1 from one position to the next within each sequence,
// as it does if the segments are cumsum(P[t] - P[t - 1] != 1), conditions on P are conditions on positions.
MaskPredicate analyse_mask(const Value* mask, const Dim& queries, const Dim& keys);

// Why an attention with the mask `mask`, which was not taken apart, has no keys to cache.
std::string why_not_cached(const Value* mask);

}  // namespace atb
