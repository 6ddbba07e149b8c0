// SPDX-License-Identifier: Apache-2.0
// Helpers of reference kernels: broadcast walks over dense row-major tensors, and element access whatever the dtype.
#pragma once

#include <algorithm>
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

inline std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
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

// out[i, j, ...] = x[offset + i * strides[0] + j * strides[1] + ...], x flat.
template <class T>
void reference_gather(const RefTensor<T>& x, RefTensor<T>& out, int64_t offset, const std::vector<int64_t>& strides) {
  std::vector<int64_t> index(out.shape.size(), 0);
  int64_t at = offset;
  for (size_t i = 0; i < std::max(out.f.size(), out.i.size()); ++i) {
    if (is_float(x.dtype)) {
      out.f[i] = x.f[static_cast<size_t>(at)];
    } else {
      out.i[i] = x.i[static_cast<size_t>(at)];
    }
    for (size_t axis = index.size(); axis-- > 0;) {
      at += strides[axis];
      if (++index[axis] < out.shape[axis]) break;
      at -= strides[axis] * index[axis];
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

// An integer as a tensor of `dtype` holds it: wrapped around; bools are 0 and 1.
inline int64_t wrapped(DType dtype, uint64_t value) {
  switch (dtype) {
    case DType::kBool:
      return value != 0 ? 1 : 0;
    case DType::kI8:
      return static_cast<int8_t>(value);
    case DType::kU8:
      return static_cast<uint8_t>(value);
    case DType::kI32:
      return static_cast<int32_t>(value);
    default:
      return static_cast<int64_t>(value);
  }
}

// Elementwise with broadcasting: floats(a, b) of two T where an operand is a float, else integers(a, b) of two int64_t;
// the result is stored as the output's dtype.
template <class T, class Floats, class Integers>
void reference_binary(RefCall<T>& call, Floats floats, Integers integers) {
  const RefTensor<T>& a = *call.inputs[0];
  const RefTensor<T>& b = *call.inputs[1];
  RefTensor<T>& out = *call.outputs[0];
  const bool any_float = is_float(a.dtype) || is_float(b.dtype);
  for_each_broadcast<2>(out.shape, {a.shape, b.shape}, [&](size_t o, const std::array<int64_t, 2>& at) {
    if (!any_float) {
      const int64_t result = integers(a.i[static_cast<size_t>(at[0])], b.i[static_cast<size_t>(at[1])]);
      out.i[o] = wrapped(out.dtype, static_cast<uint64_t>(result));
    } else if (is_float(out.dtype)) {
      out.f[o] = static_cast<T>(floats(ref_at(a, at[0]), ref_at(b, at[1])));
    } else {
      out.i[o] = static_cast<int64_t>(floats(ref_at(a, at[0]), ref_at(b, at[1])));
    }
  });
}

// Extent of the last axis, and the product of all others, of a dense shape (rank 0 counts as [1]).
inline int64_t last_extent(const std::vector<int64_t>& shape) { return shape.empty() ? 1 : shape.back(); }
inline int64_t row_count(const std::vector<int64_t>& shape) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

}  // namespace atb
