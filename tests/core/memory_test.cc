// SPDX-License-Identifier: Apache-2.0
// Aligned buffers: alignment, zero fill, lazy pages, failure with need and have; memory figures make sense.
#include "core/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "core/error.h"

namespace atb {
namespace {

TEST(AlignedBuffer, IsAlignedAndZeroAtEverySize) {
  for (size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{4097}, kHugePage - 1, kHugePage,
                       kHugePage + 1, 3 * kHugePage + 5}) {
    AlignedBuffer buffer(bytes);
    ASSERT_NE(buffer.data(), nullptr);
    EXPECT_EQ(buffer.size(), bytes);
    const size_t alignment = bytes >= kHugePage ? kHugePage : kMemoryAlignment;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % alignment, 0u) << bytes;
    for (size_t i = 0; i < bytes; i += 61) ASSERT_EQ(buffer.data()[i], std::byte{0});
    std::memset(buffer.data(), 0xff, bytes);  // all of it is writable
  }
}

TEST(AlignedBuffer, MovesAndEmpties) {
  AlignedBuffer a(100);
  std::byte* data = a.data();
  AlignedBuffer b(std::move(a));
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: the moved-from state is documented
  AlignedBuffer c(3 * kHugePage);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.size(), 100u);
  c.reset();
  EXPECT_EQ(c.data(), nullptr);
  EXPECT_EQ(AlignedBuffer(0).size(), 0u);
}

TEST(AlignedBuffer, ImpossibleSizesAreErrorsThatSayTheNeed) {
  for (size_t bytes : {size_t{1} << 62, ~size_t{0}, ~size_t{0} - 100}) {
    try {
      AlignedBuffer buffer(bytes, "test");
      FAIL() << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kResourceExhausted);
      EXPECT_NE(std::string(error.what()).find("[test]"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(std::to_string(bytes)), std::string::npos);
    }
  }
}

TEST(AlignedBuffer, DiscardedPagesReadAsZero) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  AlignedBuffer buffer(2 * kHugePage);
  std::memset(buffer.data(), 7, buffer.size());
  EXPECT_EQ(discard_pages(buffer.data() + 1, kHugePage), kHugePage - page);  // the page that is cut at each end stays
  EXPECT_EQ(buffer.data()[page - 1], std::byte{7});
  EXPECT_EQ(buffer.data()[page], std::byte{0});
  EXPECT_EQ(buffer.data()[kHugePage], std::byte{7});
  EXPECT_EQ(discard_pages(buffer.data() + 1, 100), 0u);
}

TEST(Memory, FiguresMakeSense) {
  const size_t before = current_rss_bytes();
  EXPECT_GT(before, size_t{1} << 16);
  AlignedBuffer buffer(size_t{64} << 20);
  std::memset(buffer.data(), 1, buffer.size());
  EXPECT_GT(current_rss_bytes(), before + (size_t{48} << 20));
  EXPECT_GE(peak_rss_bytes() + (size_t{1} << 20), current_rss_bytes());
  EXPECT_GT(available_memory_bytes(), 0u);
}

// A size in bytes from /proc/self/status: "VmSize", "VmData".
size_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1)) << 10;
  }
  return 0;
}

TEST(Memory, TheLimitsOfTheProcessCount) {
  constexpr size_t kLeft = size_t{64} << 20;  // a sanitizer's runtime still finds what it needs
  for (const auto& [resource, used] : {std::pair{RLIMIT_AS, "VmSize"}, std::pair{RLIMIT_DATA, "VmData"}}) {
    rlimit old{};
    ASSERT_EQ(getrlimit(resource, &old), 0);
    rlimit tight = old;
    tight.rlim_cur = status_bytes(used) + kLeft;
    ASSERT_EQ(setrlimit(resource, &tight), 0);
    const size_t have = available_memory_bytes();
    ASSERT_EQ(setrlimit(resource, &old), 0);
    EXPECT_LE(have, kLeft);
    EXPECT_GT(have, 0u);
  }
}

TEST(Memory, RequireMemoryGivesNeedAndHave) {
  EXPECT_NO_THROW(require_memory(1, "test", "x"));
  try {
    require_memory(size_t{1} << 60, "test", "the model");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find("[test] the model needs 1152921504606846976 bytes"), std::string::npos);
  }
}

}  // namespace
}  // namespace atb
