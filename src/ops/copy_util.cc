// SPDX-License-Identifier: Apache-2.0
#include "ops/copy_util.h"

#include <cstring>

namespace atb {
namespace {

int64_t bytes_of(const TensorView& view, int64_t elements) {
  return elements * static_cast<int64_t>(dtype_size(view.dtype));
}

}  // namespace

void copy_rows(const TensorView& from, const TensorView& to, int64_t begin, int64_t end) noexcept {
  const int64_t n = to.rank == 0 ? 1 : to.dim(-1);
  if (n == 0) return;
  const int64_t stride = n == 1 ? 1 : from.stride[static_cast<size_t>(from.rank - 1)];
  const auto row_bytes = static_cast<size_t>(bytes_of(to, n));
  for (int64_t row = begin; row < end; ++row) {
    std::byte* target = to.data + bytes_of(to, leading_offset(to, to.rank - 1, row));
    if (stride == 1) {
      std::memcpy(target, from.data + bytes_of(from, leading_offset(from, from.rank - 1, row)), row_bytes);
    } else {
      copy_row(from, row, target);
    }
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
