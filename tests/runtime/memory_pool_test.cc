// SPDX-License-Identifier: Apache-2.0
// Memory pool: regions never overlap, growth and limit, joining of free pieces, defragmentation, messages.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "runtime/memory/pool.h"

namespace atb {
namespace {

constexpr size_t kMb = size_t{1} << 20;

TEST(MemoryPool, RegionsAreAlignedAndGoBack) {
  MemoryPool pool;
  {
    MemoryRegion a = pool.allocate(100), b = pool.allocate(1);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % kMemoryAlignment, 0u);
    EXPECT_EQ(a.size(), 100u);
    EXPECT_EQ(pool.stats().in_use, 128u + 64u);
    MemoryRegion c = std::move(a);
    EXPECT_EQ(a.data(), nullptr);  // NOLINT: the moved-from state is documented
    c = std::move(b);
    EXPECT_EQ(pool.stats().in_use, 64u);
  }
  EXPECT_EQ(pool.stats().in_use, 0u);
  EXPECT_EQ(pool.stats().peak, 192u);
  EXPECT_EQ(pool.stats().reserved, kMb);
  EXPECT_EQ(pool.stats().fragmentation, 0.0);  // all joined again
  EXPECT_EQ(pool.trim(), kMb);
  EXPECT_EQ(pool.stats().reserved, 0u);
  EXPECT_EQ(pool.allocate(0).data(), nullptr);
}

TEST(MemoryPool, GrowsGeometricallyUpToTheLimit) {
  MemoryPool pool({.max_size = 5 * kMb, .growth_factor = 2.0});
  std::vector<MemoryRegion> regions;
  std::vector<size_t> reserved;
  for (int i = 0; i < 5; ++i) {
    regions.push_back(pool.allocate(kMb));
    reserved.push_back(pool.stats().reserved / kMb);
  }
  EXPECT_EQ(reserved, (std::vector<size_t>{1, 3, 3, 5, 5}));
  EXPECT_THROW(pool.allocate(1), Error);
}

TEST(MemoryPool, OutOfMemorySaysNeedHaveLimitAndWhatFits) {
  MemoryPool pool({.max_size = 4 * kMb});
  MemoryRegion held = pool.allocate(3 * kMb);
  try {
    pool.allocate(2 * kMb);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kResourceExhausted);
    const std::string text = error.what();
    EXPECT_NE(text.find("need 2097152 bytes"), std::string::npos) << text;
    EXPECT_NE(text.find("have 1048576 free"), std::string::npos) << text;
    EXPECT_NE(text.find("limit 4194304 bytes"), std::string::npos) << text;
    EXPECT_NE(text.find("fits now is 1048576"), std::string::npos) << text;
  }
  MemoryRegion fits = pool.allocate(kMb);  // what the message promised
  EXPECT_EQ(pool.stats().in_use, 4 * kMb);
}

TEST(MemoryPool, UnusedChunksMakeRoomForALargerOne) {
  MemoryPool pool({.max_size = 4 * kMb});
  pool.allocate(kMb).reset();
  MemoryRegion whole = pool.allocate(4 * kMb);
  EXPECT_EQ(pool.stats().reserved, 4 * kMb);
}

TEST(MemoryPool, AbsurdSizesAreErrors) {
  MemoryPool pool;
  EXPECT_THROW(pool.allocate(~size_t{0}), Error);
  EXPECT_THROW(pool.allocate(size_t{1} << 62), Error);
  EXPECT_NO_THROW(pool.allocate(10));
  for (double factor : {0.5, std::nan(""), double{INFINITY}}) {
    EXPECT_THROW(MemoryPool({.growth_factor = factor}), Error);
  }
}

TEST(MemoryPool, DefragmentMovesOnlyMovableRegionsAndKeepsContents) {
  MemoryPool pool({.enable_defrag = true});
  MemoryRegion hole1 = pool.allocate(1000), a = pool.allocate(5000, true), fixed = pool.allocate(64);
  MemoryRegion hole2 = pool.allocate(3000), b = pool.allocate(7000, true), c = pool.allocate(100, true);
  std::memset(a.data(), 1, a.size());
  std::memset(b.data(), 2, b.size());
  std::memset(c.data(), 3, c.size());
  std::byte* fixed_data = fixed.data();
  hole1.reset();
  hole2.reset();
  EXPECT_GT(pool.stats().fragmentation, 0.0);
  EXPECT_EQ(pool.defragment(), 5000u + 7000u + 100u);
  EXPECT_EQ(fixed.data(), fixed_data);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a.data()[i], std::byte{1});
  for (size_t i = 0; i < b.size(); ++i) ASSERT_EQ(b.data()[i], std::byte{2});
  for (size_t i = 0; i < c.size(); ++i) ASSERT_EQ(c.data()[i], std::byte{3});
  EXPECT_EQ(b.data(), fixed.data() + 64);  // what was free there is behind it now
  EXPECT_EQ(c.data(), b.data() + 7040);
  EXPECT_EQ(pool.defragment(), 0u);
}

TEST(MemoryPool, DefragmentIsOffByDefault) {
  MemoryPool pool;
  MemoryRegion hole = pool.allocate(64), a = pool.allocate(64, true);
  std::byte* data = a.data();
  hole.reset();
  EXPECT_EQ(pool.defragment(), 0u);
  EXPECT_EQ(a.data(), data);
}

// Random traffic: every region keeps its own bytes, and accounting returns to zero.
TEST(MemoryPool, RandomTraffic) {
  MemoryPool pool({.max_size = 8 * kMb, .growth_factor = 1.5, .enable_defrag = true});
  std::mt19937 random(7);
  struct Held {
    MemoryRegion region;
    int mark;
  };
  std::vector<Held> held;
  const auto intact = [](const Held& item) {
    for (size_t i = 0; i < item.region.size(); ++i) {
      if (item.region.data()[i] != static_cast<std::byte>(item.mark)) return false;
    }
    return true;
  };
  for (int round = 0; round < 2000; ++round) {
    if (held.empty() || random() % 2 == 0) {
      try {
        const size_t bytes = 1 + random() % 300000;
        const bool odd = random() % 2 != 0;
        held.push_back({pool.allocate(bytes, !odd), static_cast<int>(random() % 256)});
        std::memset(held.back().region.data(), held.back().mark, held.back().region.size());
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), Code::kResourceExhausted);
      }
    } else {
      const size_t victim = random() % held.size();
      ASSERT_TRUE(intact(held[victim]));
      std::swap(held[victim], held.back());
      held.pop_back();
    }
    if (round % 100 == 99) pool.defragment();
    ASSERT_LE(pool.stats().reserved, 8 * kMb);
  }
  for (const auto& item : held) ASSERT_TRUE(intact(item));
  held.clear();
  EXPECT_EQ(pool.stats().in_use, 0u);
  pool.trim();
  EXPECT_EQ(pool.stats().reserved, 0u);
}

}  // namespace
}  // namespace atb
