// SPDX-License-Identifier: Apache-2.0
// Aligned memory with huge pages where they help, and how much memory the process uses and may still use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace atb {

constexpr size_t kMemoryAlignment = 64;        // of every buffer and every planned offset: one cache line
constexpr size_t kHugePage = size_t{2} << 20;  // x86-64 and common aarch64

constexpr size_t align_up(size_t bytes, size_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

// Owned, zero-filled, 64-byte aligned memory; move-only. From kHugePage on it is mapped, aligned to a huge page,
// advised to use huge pages, and takes physical memory only where it is touched.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // `where` starts the message of a failure: kResourceExhausted with need and have.
  explicit AlignedBuffer(size_t bytes, std::string_view where = "memory");
  ~AlignedBuffer() { reset(); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    AlignedBuffer moved(static_cast<AlignedBuffer&&>(other));
    swap(moved);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  std::byte* data() const { return data_; }  // null when size() is 0
  size_t size() const { return size_; }
  void reset() noexcept;

 private:
  void swap(AlignedBuffer& other) noexcept;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  void* mapping_ = nullptr;  // null when the heap holds it
  size_t mapping_bytes_ = 0;
};

// Gives the physical pages that lie wholly inside [data, data + bytes) of a mapped AlignedBuffer back to the system;
// they read as zero afterwards. Returns the bytes given back (0: nothing could be).
size_t discard_pages(std::byte* data, size_t bytes) noexcept;

size_t peak_rss_bytes();     // largest resident set so far; 0 where the system does not say
size_t current_rss_bytes();  // 0 where the system does not say
// What can be allocated without swapping: the smallest of the system's MemAvailable, and what the control group's limit
// and this process's own limits (RLIMIT_AS, RLIMIT_DATA) leave.
size_t available_memory_bytes();

// kResourceExhausted "[where] what needs N bytes, available are M ..." unless `bytes` are available.
void require_memory(size_t bytes, std::string_view where, std::string_view what);

}  // namespace atb
