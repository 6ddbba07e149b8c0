// SPDX-License-Identifier: Apache-2.0
// Helpers of reference kernels: broadcast walks over dense row-major tensors, and element access whatever the dtype.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/reference.h"

namespace atb {

// Strides in elements of a dense tensor of `shape` as it is read for a result of `result` shape: 0 where it broadcasts.
inline std::vector<int64_t> broadcast_strides(const std::vector<int64_t>& shape, const std::vector<int64_t>& result) {
  std::vector<int64_t> strides(result.size(), 0);
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[result.size() - shape.size() + i] = shape[i] == 1 ? 0 : stride;
    stride *= shape[i];
  }
  return strides;
}

// visit(out, {a, b, ...}): flat positions of each element of the result and of the operands, in row-major order.
template <size_t N, class Visit>
void for_each_broadcast(const std::vector<int64_t>& result, const std::array<std::vector<int64_t>, N>& operand_shapes,
                        Visit visit) {
  std::array<std::vector<int64_t>, N> strides;
  for (size_t k = 0; k < N; ++k) strides[k] = broadcast_strides(operand_shapes[k], result);
  int64_t size = 1;
  for (const int64_t extent : result) size *= extent;
  std::vector<int64_t> index(result.size(), 0);
  std::array<int64_t, N> at{};
  for (int64_t out = 0; out < size; ++out) {
    visit(static_cast<size_t>(out), at);
    for (size_t axis = result.size(); axis-- > 0;) {
      if (++index[axis] < result[axis]) {
        for (size_t k = 0; k < N; ++k) at[k] += strides[k][axis];
        break;
      }
      for (size_t k = 0; k < N; ++k) at[k] -= strides[k][axis] * (result[axis] - 1);
      index[axis] = 0;
    }
  }
}

// Element of a float, integer or bool tensor as T.
template <class T>
T ref_at(const RefTensor<T>& tensor, int64_t at) {
  const auto i = static_cast<size_t>(at);
  return is_float(tensor.dtype) ? tensor.f[i] : static_cast<T>(tensor.i[i]);
}

// Extent of the last axis, and the product of all others, of a dense shape (rank 0 counts as [1]).
inline int64_t last_extent(const std::vector<int64_t>& shape) { return shape.empty() ? 1 : shape.back(); }
inline int64_t row_count(const std::vector<int64_t>& shape) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

}  // namespace atb
