// SPDX-License-Identifier: Apache-2.0
// Strided views of concrete memory.
#include "core/tensor.h"

#include "core/error.h"

namespace atb {

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

}  // namespace atb
