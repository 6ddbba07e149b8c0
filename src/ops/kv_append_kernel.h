// SPDX-License-Identifier: Apache-2.0
// CPU kernel of kv_append and rotary_kv_append.
#pragma once

#include <memory>

#include "ir/kernel.h"

namespace atb {

// `rotate`: inputs are q, k, v, cos, sin, kv and the first output is the rotated q; else inputs are k, v, kv. Null
// unless the tensors are f32. Errors: kInternal without a cache layout, or where it disagrees with the shapes.
std::unique_ptr<Kernel> make_kv_append_kernel(const KernelRequest& request, bool rotate);

// Checks that a node's slot, kv heads and head size are those of the request's cache; kInternal otherwise.
const KvLayout& checked_kv_layout(const KernelRequest& request, int64_t kv_heads, const Dim& head_dim);

}  // namespace atb
