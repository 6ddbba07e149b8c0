// SPDX-License-Identifier: Apache-2.0
// Aligned memory from the heap or from a huge-page advised mapping; memory figures from /proc.
#include "core/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "core/cgroup.h"
#include "core/error.h"

namespace atb {
namespace {

[[noreturn]] void fail(std::string_view where, size_t bytes) {
  throw_error(Code::kResourceExhausted, "[", where, "] cannot allocate: need ", bytes, " bytes, available are about ",
              available_memory_bytes(), "; free memory or use a smaller model or context");
}

// What a limit of the shell (`ulimit -v`, `ulimit -d`) leaves when `used` bytes of it are taken.
std::optional<size_t> headroom(decltype(RLIMIT_AS) resource, size_t used) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

// Bytes of a "Name:   123 kB" line; 0 if there is none.
size_t read_kb_line(const char* path, std::string_view name) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (line.compare(0, name.size(), name) != 0) continue;
    return static_cast<size_t>(std::strtoull(line.c_str() + name.size(), nullptr, 10)) * 1024;
  }
  return 0;
}

}  // namespace

AlignedBuffer::AlignedBuffer(size_t bytes, std::string_view where) {
  if (bytes == 0) return;
  if (bytes > std::numeric_limits<size_t>::max() / 4) fail(where, bytes);  // the roundings below cannot wrap
  if (bytes < kHugePage) {
    data_ = static_cast<std::byte*>(std::aligned_alloc(kMemoryAlignment, align_up(bytes, kMemoryAlignment)));
    if (data_ == nullptr) fail(where, bytes);
    std::memset(data_, 0, bytes);
  } else {
    mapping_bytes_ = align_up(bytes, kHugePage) + kHugePage;  // room to align by hand; what is unused costs nothing
    void* mapping =
        mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) fail(where, bytes);
    mapping_ = mapping;
    data_ = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uintptr_t>(mapping), kHugePage));
#ifdef MADV_HUGEPAGE
    // Whole huge pages only: the tail would be backed by a page of which little is used.
    const size_t whole = bytes / kHugePage * kHugePage;
    (void)madvise(data_, whole, MADV_HUGEPAGE);  // advice: refusal changes speed, not results
#endif
  }
  size_ = bytes;
}

void AlignedBuffer::reset() noexcept {
  if (mapping_ != nullptr) {
    munmap(mapping_, mapping_bytes_);
  } else {
    std::free(data_);
  }
  data_ = nullptr;
  size_ = 0;
  mapping_ = nullptr;
  mapping_bytes_ = 0;
}

void AlignedBuffer::swap(AlignedBuffer& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
}

size_t discard_pages(std::byte* data, size_t bytes) noexcept {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = align_up(reinterpret_cast<uintptr_t>(data), page);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  if (begin >= end) return 0;
  return madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED) == 0 ? end - begin : 0;
}

size_t peak_rss_bytes() {
  // VmHWM belongs to this program image; ru_maxrss also remembers the image before exec.
  if (const size_t bytes = read_kb_line("/proc/self/status", "VmHWM:")) return bytes;
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<size_t>(usage.ru_maxrss) * 1024 : 0;
}

size_t current_rss_bytes() {
  std::ifstream in("/proc/self/statm");
  size_t total = 0, resident = 0;
  if (!(in >> total >> resident)) return 0;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

size_t available_memory_bytes() {
  size_t bytes = read_kb_line("/proc/meminfo", "MemAvailable:");
  if (bytes == 0) {
    bytes = static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  }
  if (const auto left = cgroup_memory_headroom()) bytes = std::min<size_t>(bytes, *left);
  if (const auto left = headroom(RLIMIT_AS, read_kb_line("/proc/self/status", "VmSize:"))) {
    bytes = std::min(bytes, *left);
  }
  if (const auto left = headroom(RLIMIT_DATA, read_kb_line("/proc/self/status", "VmData:"))) {
    bytes = std::min(bytes, *left);
  }
  return bytes;
}

void require_memory(size_t bytes, std::string_view where, std::string_view what) {
  const size_t have = available_memory_bytes();
  require(bytes <= have, Code::kResourceExhausted, "[", where, "] ", what, " needs ", bytes, " bytes, available are ",
          have, "; free memory or use a smaller model or context");
}

}  // namespace atb
