// SPDX-License-Identifier: Apache-2.0
// Rotary embedding of heads, for the item and for attentions.
#pragma once

#include <utility>
#include <vector>

#include "blocks/item.h"

namespace atb {

// Attributes of a rotary embedding: theta, dim, interleaved, type and what llama3's type needs.
std::vector<AttrSpec> rotary_attrs();

// Whether a rotary embedding stands before an attention, which then rotates its queries and keys. False for others.
bool rotates_in_attention(const std::vector<BlockItem>& list, size_t index);

// Cosines and sines at the positions of x [B, T, H, D].
std::pair<Value*, Value*> rotary_tables(const ItemCall& call, const Attrs& rotary, const Value* x);

// x [B, T, H, D] rotated by tables that fit it.
Value* rotate(const ItemCall& call, const Attrs& rotary, Value* x, std::pair<Value*, Value*> tables);

}  // namespace atb
