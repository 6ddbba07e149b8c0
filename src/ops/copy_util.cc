// SPDX-License-Identifier: Apache-2.0
#include "ops/copy_util.h"

#include <algorithm>
#include <cstring>

namespace atb {
namespace {

int64_t bytes_of(const TensorView& view, int64_t elements) {
  return elements * static_cast<int64_t>(dtype_size(view.dtype));
}

// Rows, of n elements each, that lie side by side: from each multiple of this number on.
int64_t dense_rows(const TensorView& view, int64_t n) {
  int64_t rows = 1;
  for (int axis = view.rank - 2; axis >= 0; --axis) {
    const auto i = static_cast<size_t>(axis);
    if (view.shape[i] != 1 && view.stride[i] != rows * n) break;
    rows *= view.shape[i];
  }
  return rows;
}

}  // namespace

void copy_rows(const TensorView& from, const TensorView& to, int64_t begin, int64_t end) noexcept {
  const int64_t n = to.rank == 0 ? 1 : to.dim(-1);
  if (n == 0 || begin >= end) return;
  const int64_t stride = n == 1 ? 1 : from.stride[static_cast<size_t>(from.rank - 1)];
  const int64_t run = stride == 1 ? std::min(dense_rows(from, n), dense_rows(to, n)) : 1;
  for (int64_t row = begin; row < end;) {
    const int64_t rows = std::min(end - row, run - row % run);
    std::byte* target = to.data + bytes_of(to, leading_offset(to, to.rank - 1, row));
    if (stride == 1) {
      const std::byte* source = from.data + bytes_of(from, leading_offset(from, from.rank - 1, row));
      std::memcpy(target, source, static_cast<size_t>(bytes_of(to, rows * n)));
    } else {
      copy_row(from, row, target);
    }
    row += rows;
  }
}

TensorView inner_view(const TensorView& view, int axes, int64_t index) noexcept {
  TensorView inner;
  inner.data = view.data + bytes_of(view, leading_offset(view, axes, index));
  inner.dtype = view.dtype;
  inner.rank = view.rank - axes;
  for (int axis = axes; axis < view.rank; ++axis) {
    inner.shape[static_cast<size_t>(axis - axes)] = view.shape[static_cast<size_t>(axis)];
    inner.stride[static_cast<size_t>(axis - axes)] = view.stride[static_cast<size_t>(axis)];
  }
  return inner;
}

TensorView narrowed(TensorView view, size_t axis, int64_t begin, int64_t extent, int64_t step) noexcept {
  if (view.data != nullptr) view.data += bytes_of(view, begin * view.stride[axis]);
  view.shape[axis] = extent;
  view.stride[axis] *= step;
  return view;
}

}  // namespace atb
