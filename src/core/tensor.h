// SPDX-License-Identifier: Apache-2.0
// A borrowed, strided view of concrete memory: what kernels see.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace atb {

constexpr int kMaxRank = 8;

// Strides are in elements; the last axis has stride 1 (kernels rely on it) unless its extent is <= 1.
struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  int64_t dim(int axis) const { return shape[static_cast<size_t>(axis < 0 ? axis + rank : axis)]; }
  int64_t size() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[static_cast<size_t>(i)];
    return n;
  }
  // Product of all extents but the last.
  int64_t rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < rank; ++i) n *= shape[static_cast<size_t>(i)];
    return n;
  }
  bool contiguous() const;
  static TensorView dense(std::byte* data, DType dtype, std::span<const int64_t> shape);
};

// Offset in elements of the index-th row-major position over the first `axes` axes of a strided view.
inline int64_t leading_offset(const TensorView& view, int axes, int64_t index) {
  int64_t offset = 0;
  for (int axis = axes; axis-- > 0;) {
    const size_t a = static_cast<size_t>(axis);
    offset += index % view.shape[a] * view.stride[a];
    index /= view.shape[a];
  }
  return offset;
}

// Writes the elements of one row (the last axis, of any stride) side by side; `row` counts them row-major.
void copy_row(const TensorView& view, int64_t row, std::byte* to);
// Writes all elements row-major and side by side.
void copy_dense(const TensorView& view, std::byte* to);

}  // namespace atb
