// SPDX-License-Identifier: Apache-2.0
// Memory of results: taken again when free, never while somebody holds it, not held by calls that need far less.
#include "api/result_buffers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <thread>
#include <vector>

namespace atb {
namespace {

TEST(ResultBuffers, FreeMemoryIsTakenAgain) {
  ResultBuffers buffers;
  std::byte* first = buffers.take(0, 1000).get();
  EXPECT_EQ(buffers.free_bytes(), 1000u);
  const auto again = buffers.take(0, 900);
  EXPECT_EQ(again.get(), first);
  EXPECT_EQ(buffers.free_bytes(), 0u);
}

TEST(ResultBuffers, HeldMemoryIsNot) {
  ResultBuffers buffers;
  const auto first = buffers.take(0, 64);
  const auto second = buffers.take(0, 64);
  const auto other = buffers.take(1, 64);
  EXPECT_NE(first.get(), second.get());
  EXPECT_NE(first.get(), other.get());
}

TEST(ResultBuffers, OneFreeBufferAResult) {
  ResultBuffers buffers;
  { const std::vector<std::shared_ptr<std::byte>> held = {buffers.take(0, 500), buffers.take(0, 500)}; }
  EXPECT_EQ(buffers.free_bytes(), 500u);
}

TEST(ResultBuffers, LongCallsDoNotLeaveTheirMemoryToShortOnes) {
  ResultBuffers buffers;
  buffers.take(0, 1 << 20).reset();
  const auto little = buffers.take(0, 100);
  EXPECT_EQ(buffers.free_bytes(), 0u);
}

TEST(ResultBuffers, ResultsOutliveTheGraphThatMadeThem) {
  std::optional<ResultBuffers> buffers(std::in_place);
  const auto kept = buffers->take(0, 4096);
  buffers.reset();
  std::memset(kept.get(), 1, 4096);
  EXPECT_EQ(kept.get()[4095], std::byte{1});
}

TEST(ResultBuffers, NothingIsAPlaceToo) { EXPECT_NE(ResultBuffers().take(0, 0), nullptr); }

TEST(ResultBuffers, ThreadsShareThem) {
  ResultBuffers buffers;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&buffers, t] {
      for (size_t i = 0; i < 200; ++i) {
        const auto mine = buffers.take(i % 3, 256);
        std::memset(mine.get(), t, 256);
        for (size_t at = 0; at < 256; ++at) ASSERT_EQ(mine.get()[at], static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace atb
