// SPDX-License-Identifier: Apache-2.0
// Rotary embedding of heads, for the item and for attentions.
#pragma once

#include <utility>
#include <vector>

#include "blocks/item.h"

namespace atb {

// Attributes of a rotary embedding: theta, dim, interleaved, type and what llama3's type needs.
std::vector<AttrSpec> rotary_attrs();

// Cosines and sines at the positions of x [B, T, H, D].
std::pair<Value*, Value*> rotary_tables(const ItemCall& call, const Attrs& rotary, const Value* x);

// x [B, T, H, D] rotated by tables that fit it.
Value* rotate(const ItemCall& call, const Attrs& rotary, Value* x, std::pair<Value*, Value*> tables);

}  // namespace atb
