// SPDX-License-Identifier: Apache-2.0
// Memory with known bytes on both sides, so that writes outside are seen.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace atb::testing {

// `bytes` bytes that start `misalign` bytes behind a multiple of 64, filled with 0xff (NaN in f32).
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t bytes, size_t misalign = 0)
      : bytes_(bytes), memory_(bytes + 3 * kGuard + misalign, std::byte{0xff}) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    start_ = (address + kGuard + 63) / 64 * 64 - address + misalign;
    std::fill_n(memory_.begin(), start_, kMark);
    std::fill(memory_.begin() + static_cast<std::ptrdiff_t>(start_ + bytes_), memory_.end(), kMark);
  }
  std::byte* data() { return memory_.data() + start_; }
  const std::byte* data() const { return memory_.data() + start_; }
  size_t size() const { return bytes_; }
  void fill(std::byte value) { std::fill_n(data(), bytes_, value); }
  bool intact() const {
    const auto marked = [](std::byte b) { return b == kMark; };
    return std::all_of(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(start_), marked) &&
           std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(start_ + bytes_), memory_.end(), marked);
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr std::byte kMark{0xa5};
  size_t bytes_;
  size_t start_ = 0;
  std::vector<std::byte> memory_;
};

}  // namespace atb::testing
