// SPDX-License-Identifier: Apache-2.0
// Packed store: packs once a key, in parallel, releases source pages, survives failures, says what memory is missing.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "core/constant.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/thread_team.h"
#include "ir/kernel.h"
#include "ir/packed_requests.h"

namespace atb {
namespace {

ConstantRef counting(int64_t rows, int64_t columns) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Constant::from_f32("w", {rows, columns}, values);
}

TEST(PackedStore, PacksEachUnitOnceAndKeepsTheForm) {
  for (int threads : {0, 1, 3}) {
    std::unique_ptr<ThreadTeam> team = threads == 0 ? nullptr : std::make_unique<ThreadTeam>(threads);
    PackedStore store(team.get());
    const ConstantRef w = counting(10, 8);
    int64_t packed = 0;
    std::mutex mutex;
    const auto pack = [&](std::byte* dst, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) dst[i] = static_cast<std::byte>(i + 1);
      const std::lock_guard lock(mutex);
      packed += end - begin;
    };
    const auto a = store.get(w, "panels", 16, 10, pack);
    const auto b = store.get(w, "panels", 16, 10, pack);
    EXPECT_EQ(a, b);
    EXPECT_EQ(packed, 10);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(static_cast<int>(a.get()[i]), i < 10 ? i + 1 : 0);  // the rest is zero
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.get()) % kMemoryAlignment, 0u);
    EXPECT_NE(store.get(w, "other", 16, 10, pack), a);
    EXPECT_EQ(store.bytes(), 32u);
  }
}

TEST(PackedStore, SmallAndLargeFormsDoNotOverlap) {
  PackedStore store;
  std::vector<std::pair<std::shared_ptr<const std::byte>, size_t>> forms;
  const std::vector<size_t> sizes = {1,
                                     64,
                                     65,
                                     size_t{3} << 20,
                                     size_t{3} << 20,
                                     size_t{5} << 20,
                                     size_t{3} << 20,
                                     size_t{3} << 20,
                                     size_t{3} << 20,
                                     size_t{3} << 20,
                                     0,
                                     7};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto fill = [&](std::byte* dst, int64_t, int64_t) { std::memset(dst, static_cast<int>(i + 1), sizes[i]); };
    forms.emplace_back(store.get(counting(1, 1), "x", sizes[i], 1, fill), sizes[i]);
  }
  for (size_t i = 0; i < forms.size(); ++i) {
    const auto& [data, bytes] = forms[i];
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data.get()) % kMemoryAlignment, 0u);
    for (size_t j = 0; j < bytes; j += 1000) ASSERT_EQ(static_cast<size_t>(data.get()[j]), i + 1);
  }
}

TEST(PackedStore, FormsOutliveTheStore) {
  std::shared_ptr<const float> values;
  {
    PackedStore store;
    values = store.f32(counting(3, 5));
  }
  for (int i = 0; i < 15; ++i) EXPECT_EQ(values.get()[i], static_cast<float>(i));
}

TEST(PackedStore, ReleasesSourcePages) {
  auto bytes = std::make_shared<std::vector<std::byte>>(256);
  std::atomic<size_t> released{0};
  auto storage = std::make_shared<Storage>();
  storage->bytes = *bytes;
  storage->owner = bytes;
  storage->release_pages = [&](const std::byte*, size_t size) { released += size; };
  PackedStore store;
  store.f32(Constant::from_storage("w", DType::kF32, nullptr, {4, 16}, storage, 0));
  EXPECT_EQ(released.load(), 256u);
}

TEST(PackedStore, AFailedPackIsRetriedByTheNextRequest) {
  ThreadTeam team(2);
  PackedStore store(&team);
  const ConstantRef w = counting(4, 4);
  const auto fail = [](std::byte*, int64_t, int64_t) { throw_error(Code::kDataLoss, "[test] cut"); };
  EXPECT_THROW(store.get(w, "x", 8, 4, fail), Error);
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_NO_THROW(store.get(w, "x", 8, 4, [](std::byte*, int64_t, int64_t) {}));
}

TEST(PackedStore, TooLittleMemoryNamesTheConstantAndTheNeed) {
  PackedStore store;
  const size_t bytes = size_t{1} << 50;
  try {
    store.get(counting(1, 1), "x", bytes, 1, [](std::byte*, int64_t, int64_t) {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find("w needs " + std::to_string(bytes)), std::string::npos) << error.what();
  }
}

TEST(PackedStore, AbsentConstantsAreRefused) {
  PackedStore store;
  try {
    store.f32(Constant::absent("w", DType::kF32, nullptr, {2, 2}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  }
}

TEST(PackedRequests, RecordsWhatThisThreadAsksForMeanwhile) {
  PackedStore store;
  const ConstantRef a = counting(2, 2), b = counting(2, 2), c = counting(2, 2);
  store.f32(a);
  const PackedRequests outer;
  store.f32(b);
  {
    const PackedRequests inner;
    store.f32(a);  // packed already, but asked for
    std::thread([&] { store.f32(c); }).join();
    EXPECT_TRUE(inner.contains(a->id()));
    EXPECT_FALSE(inner.contains(b->id()));
    EXPECT_FALSE(inner.contains(c->id()));
  }
  EXPECT_TRUE(outer.contains(b->id()));
  EXPECT_FALSE(outer.contains(a->id()));
  store.f32(c);
  EXPECT_TRUE(outer.contains(c->id()));
}

TEST(PackedStore, AnyThreadMayAsk) {
  ThreadTeam team(2);
  PackedStore store(&team);
  const ConstantRef w = counting(16, 4);
  std::atomic<int> packs{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        store.get(w, std::to_string(i), 64, 1, [&](std::byte*, int64_t, int64_t) { packs.fetch_add(1); });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(packs.load(), 20);
}

}  // namespace
}  // namespace atb
