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
// Fails unless inputs 0 to 2 are floats q [B, T, H, D], k and v [B, S, KV, D], as far as the extents are known. Keys
// that may be `shared` can have a batch of 1: every query of the batch reads them.
void require_qkv(const InferArgs& args, bool shared);
// Fails unless input `mask` is float and broadcasts to the scores [B, H, T, S], its last extent being S itself.
void require_scores_mask(const InferArgs& args, size_t mask, const Shape& scores);
// Fails unless the input is a state.
void require_state(const InferArgs& args, size_t input);

// Bytes of `value` in its own dtype.
Dim bytes_of(const Value& value);

// The row [S] of a mask that broadcasts to [B, H, T, S]; `data` are the mask's elements.
inline const float* mask_row(const TensorView& mask, const float* data, int64_t batch, int64_t head, int64_t token) {
  const int64_t index[] = {batch, head, token};
  for (int axis = mask.rank - 2; axis >= 0; --axis) {
    const int64_t at = mask.dim(axis) == 1 ? 0 : index[3 - (mask.rank - 1 - axis)];
    data += at * mask.stride[static_cast<size_t>(axis)];
  }
  return data;
}

// A panel of keys: `count` <= 16 rows of head_dim floats, `stride` apart, side by side as [head_dim][16]. Lanes without
// a key are zero.
inline void pack_key_panel(const float* keys, int64_t stride, int64_t count, int64_t head_dim, float* panel) {
  for (int64_t d = 0; d < head_dim; ++d) {
    for (int64_t key = 0; key < kKeyPanel; ++key) *panel++ = key < count ? keys[key * stride + d] : 0.0f;
  }
}

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
