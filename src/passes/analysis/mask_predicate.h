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
  // Hidden keys have exactly -inf, so a row that sees none gives 0; otherwise a huge finite number, and such a row
  // gives the mean of all values.
  bool infinite = false;
  std::string why;

  bool causal() const { return kind == Kind::kCausal || kind == Kind::kWindow; }
};

// Reduces an additive mask (0 where a key is seen, -inf or below -1e30 where not) that broadcasts to scores
// [B, ..., T, S] with T = S. This is a proof (passes/analysis/index_forms.h): anything else is unknown. A constant mask
// is read.
MaskPredicate analyse_mask(const Value* mask, const Dim& queries, const Dim& keys);

}  // namespace atb
