// SPDX-License-Identifier: Apache-2.0
// Pass: turns a cache-free decoder into an incremental, ragged step over a KV cache, or proves that it cannot.
#pragma once

#include <memory>

#include "ir/graph.h"

namespace atb {

// Inputs `attention_mask` and `position_ids` of [B, T] become what they are without padding: ones, and 0, 1, 2, ....
// A ragged step has no padding, so a graph that is to become one starts with this, before canonicalization.
void drop_padding(Graph& graph);

// From a fused graph on ids i32 or i64 [B, T] with one output [B, T, V] (or of the last token), makes the step graph:
// inputs ids i32[T], positions i32[T], logit_rows i32[L], kv (state); outputs logits [L, V] and kv. T runs over the new
// tokens of all sequences of the step, and each attention appends to its slot of the cache and reads its sequence's
// keys from there.
//
// Each axis is labelled (see analysis/axis_labels.h); token-wise operators stay, positions replace iota, the rows whose
// logits are asked for are gathered before the head. Anything else is refused with kUnsupported, naming node and scope,
// and `graph` is left as it was.
void insert_kv_cache(Graph& graph);

}  // namespace atb
