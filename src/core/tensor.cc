// SPDX-License-Identifier: Apache-2.0
// Strided views of concrete memory.
#include "core/tensor.h"

#include <cstring>

#include "core/error.h"

namespace atb {
namespace {

template <size_t kBytes>
void copy_elements(const std::byte* from, int64_t stride, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + static_cast<size_t>(i) * kBytes, from + i * stride * static_cast<int64_t>(kBytes), kBytes);
  }
}

}  // namespace

bool TensorView::contiguous() const {
  int64_t expected = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    const auto i = static_cast<size_t>(axis);
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && stride[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

TensorView TensorView::dense(std::byte* data, DType dtype, std::span<const int64_t> shape) {
  require(shape.size() <= kMaxRank, Code::kInvalidArgument, "[tensor] rank ", shape.size(), ": at most ", kMaxRank);
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    view.shape[i] = shape[i];
    view.stride[i] = stride;
    stride *= shape[i];
  }
  return view;
}

void copy_row(const TensorView& view, int64_t row, std::byte* to) {
  const int64_t offset = leading_offset(view, view.rank - 1, row);
  const int64_t stride = view.stride[static_cast<size_t>(view.rank - 1)];
  const std::byte* from = view.data + offset * static_cast<int64_t>(dtype_size(view.dtype));
  switch (dtype_size(view.dtype)) {
    case 1:
      return copy_elements<1>(from, stride, view.dim(-1), to);
    case 2:
      return copy_elements<2>(from, stride, view.dim(-1), to);
    case 4:
      return copy_elements<4>(from, stride, view.dim(-1), to);
    default:
      return copy_elements<8>(from, stride, view.dim(-1), to);
  }
}

void copy_dense(const TensorView& view, std::byte* to) {
  const size_t bytes = static_cast<size_t>(view.size()) * dtype_size(view.dtype);
  if (bytes == 0) return;
  if (view.contiguous()) {
    std::memcpy(to, view.data, bytes);
    return;
  }
  const size_t row_bytes = static_cast<size_t>(view.dim(-1)) * dtype_size(view.dtype);
  for (int64_t row = 0; row < view.rows(); ++row) copy_row(view, row, to + static_cast<size_t>(row) * row_bytes);
}

}  // namespace atb
