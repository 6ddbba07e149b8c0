// SPDX-License-Identifier: Apache-2.0
// Strided copies: what concat, slice, broadcast and take do.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace atb {

// Writes rows [begin, end) (row-major over all axes but the last) of `to` from the same rows of `from`, which has its
// shape and dtype. Any strides of `from`, 0 too; the last axis of `to` has stride 1.
void copy_rows(const TensorView& from, const TensorView& to, int64_t begin, int64_t end) noexcept;

// `view` without the first `axes` axes, at their row-major position `index`.
TensorView inner_view(const TensorView& view, int axes, int64_t index) noexcept;

// Elements [begin, begin + extent) of `view` along `axis`, every step-th.
TensorView narrowed(TensorView view, size_t axis, int64_t begin, int64_t extent, int64_t step = 1) noexcept;

}  // namespace atb
