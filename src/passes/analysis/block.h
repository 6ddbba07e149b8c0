// SPDX-License-Identifier: Apache-2.0
// Something known of each element of a few trailing axes, followed through concat, slice and broadcast of them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace atb {

// Row-major items over axes of known extents.
template <class T>
struct Block {
  std::vector<int64_t> dims;
  std::vector<T> items;

  int64_t size() const { return static_cast<int64_t>(items.size()); }
};

// Elements before and behind one step along `axis`.
inline int64_t outer_size(const std::vector<int64_t>& dims, size_t axis) {
  int64_t size = 1;
  for (size_t i = 0; i < axis; ++i) size *= dims[i];
  return size;
}
inline int64_t inner_size(const std::vector<int64_t>& dims, size_t axis) {
  int64_t size = 1;
  for (size_t i = axis + 1; i < dims.size(); ++i) size *= dims[i];
  return size;
}

// The parts one after another along `axis`; nothing if their other extents differ.
template <class T>
std::optional<Block<T>> concat_blocks(const std::vector<Block<T>>& parts, size_t axis) {
  Block<T> result{parts[0].dims, {}};
  result.dims[axis] = 0;
  for (const Block<T>& part : parts) {
    if (part.dims.size() != result.dims.size()) return std::nullopt;
    for (size_t i = 0; i < part.dims.size(); ++i) {
      if (i != axis && part.dims[i] != result.dims[i]) return std::nullopt;
    }
    result.dims[axis] += part.dims[axis];
  }
  for (int64_t outer = 0; outer < outer_size(result.dims, axis); ++outer) {
    for (const Block<T>& part : parts) {
      const int64_t run = part.dims[axis] * inner_size(part.dims, axis);
      const auto begin = part.items.begin() + outer * run;
      result.items.insert(result.items.end(), begin, begin + run);
    }
  }
  return result;
}

// Indices begin, begin + step, ... below `end` of `axis`.
template <class T>
Block<T> slice_block(const Block<T>& block, size_t axis, int64_t begin, int64_t end, int64_t step) {
  Block<T> result{block.dims, {}};
  result.dims[axis] = 0;
  for (int64_t i = begin; i < end; i += step) ++result.dims[axis];
  const int64_t inner = inner_size(block.dims, axis);
  for (int64_t outer = 0; outer < outer_size(block.dims, axis); ++outer) {
    for (int64_t i = begin; i < end; i += step) {
      const auto from = block.items.begin() + (outer * block.dims[axis] + i) * inner;
      result.items.insert(result.items.end(), from, from + inner);
    }
  }
  return result;
}

// Each axis of extent 1 repeated to the extent in `dims`; nothing if other extents differ.
template <class T>
std::optional<Block<T>> broadcast_block(const Block<T>& block, const std::vector<int64_t>& dims) {
  if (block.dims.size() != dims.size()) return std::nullopt;
  Block<T> result = block;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (result.dims[axis] == dims[axis]) continue;
    if (result.dims[axis] != 1) return std::nullopt;
    const std::vector<Block<T>> copies(static_cast<size_t>(dims[axis]), result);
    if (copies.empty()) return std::nullopt;
    result = *concat_blocks(copies, axis);
  }
  return result;
}

}  // namespace atb
