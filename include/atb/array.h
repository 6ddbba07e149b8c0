// SPDX-License-Identifier: Apache-2.0
// Arrays that go into blocks and come out of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace atb {

enum class ElementType { kF32, kF16, kBF16, kI32, kI64, kBool };

// A dense, row-major array that somebody else owns.
struct ArrayView {
  const void* data = nullptr;  // null: no array
  ElementType type = ElementType::kF32;
  std::vector<int64_t> shape{};
};

// A dense, row-major array of its own; it outlives the block that made it.
struct Array {
  std::shared_ptr<const void> data;
  ElementType type = ElementType::kF32;
  std::vector<int64_t> shape;

  template <class T>
  const T* as() const {
    return static_cast<const T*>(data.get());
  }
};

}  // namespace atb
