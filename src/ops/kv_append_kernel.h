// SPDX-License-Identifier: Apache-2.0
// CPU kernel of kv_append and rotary_kv_append.
#pragma once

#include <memory>

#include "ir/kernel.h"

namespace atb {

// `rotate`: inputs are q, k, v, cos, sin, kv and the first output is the rotated q; else inputs are k, v, kv. Null
// unless the tensors are f32. Errors: kInternal without a cache layout, or where it disagrees with the shapes.
std::unique_ptr<Kernel> make_kv_append_kernel(const KernelRequest& request, bool rotate);

// Checks that a node's slot, kv heads and head size are those of the request's cache; kInternal otherwise. In a layout
// of one slot any slot will do: each has blocks of its own then, and the executor gives a node those of its slot.
const KvLayout& checked_kv_layout(const KernelRequest& request, int64_t kv_heads, const Dim& head_dim);

// Which of a block's slots a node reads and writes.
int64_t slot_in_block(const KvLayout& layout, const Node& node);

}  // namespace atb
