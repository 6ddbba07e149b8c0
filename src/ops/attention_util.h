// SPDX-License-Identifier: Apache-2.0
// What the rotary, cache and attention operators share: shape checks, accounting, walks over ragged steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/kv_layout.h"
#include "core/tensor.h"
#include "ir/op.h"

namespace atb {

// Fails unless kv_heads >= 1 and heads is a multiple of it, as far as the extents are known.
void require_head_groups(const InferArgs& args, const Dim& heads, const Dim& kv_heads);
// Fails unless cos and sin (inputs cos, cos + 1) are [..., T, R/2] with leading dims those of x [..., T, H, D] (input
// x), or the last of them, and R <= D.
void require_rotary_tables(const InferArgs& args, size_t x, size_t cos);
// Fails unless attribute softcap is 0 (none) or positive and finite.
void require_softcap(const InferArgs& args);
// Fails unless the input is a state.
void require_state(const InferArgs& args, size_t input);

// Bytes of `value` in its own dtype.
Dim bytes_of(const Value& value);

// The sequences of a reference call: one of all rows and no past where none are given.
inline std::vector<RefSequence> reference_sequences(const std::vector<RefSequence>& given, int64_t rows) {
  return given.empty() ? std::vector<RefSequence>{{0, 0, rows, 0}} : given;
}

// Units of a ragged step are numbered sequence by sequence: count(sequence) each. Calls visit(sequence, unit in the
// sequence) for the units [begin, end) of the step.
template <class Count, class Visit>
void for_each_unit(std::span<const SequenceStep> sequences, int64_t begin, int64_t end, Count count, Visit visit) {
  int64_t first = 0;
  for (const SequenceStep& sequence : sequences) {
    if (first >= end) return;
    const int64_t units = count(sequence);
    const int64_t stop = std::min(end - first, units);
    for (int64_t unit = std::max<int64_t>(begin - first, 0); unit < stop; ++unit) visit(sequence, unit);
    first += units;
  }
}

}  // namespace atb
