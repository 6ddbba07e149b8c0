// SPDX-License-Identifier: Apache-2.0
// Memory planner: plans never overlap, respect the bound, are the same every time, and are near it on public instances.
#include "passes/plan_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "passes/planner_instance.h"

namespace atb {
namespace {

// Every promise of a plan but its quality.
void expect_valid(const std::vector<PlannedBuffer>& buffers, const MemoryPlan& plan, int64_t alignment) {
  ASSERT_EQ(plan.offsets.size(), buffers.size());
  int64_t total = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    ASSERT_GE(plan.offsets[i], 0);
    ASSERT_EQ(plan.offsets[i] % alignment, 0);
    total = std::max(total, plan.offsets[i] + buffers[i].size);
    for (size_t j = 0; j < i; ++j) {
      const bool alive_together = buffers[i].lower < buffers[j].upper && buffers[j].lower < buffers[i].upper;
      const bool overlap =
          plan.offsets[i] < plan.offsets[j] + buffers[j].size && plan.offsets[j] < plan.offsets[i] + buffers[i].size;
      ASSERT_FALSE(alive_together && overlap && buffers[i].size > 0 && buffers[j].size > 0) << i << " and " << j;
    }
  }
  ASSERT_GE(plan.total, total);
  ASSERT_LT(plan.total - total, alignment);
  ASSERT_GE(plan.total, plan.lower_bound);
}

std::vector<PlannedBuffer> random_buffers(std::mt19937& random, size_t count, int64_t steps, int64_t max_size) {
  std::vector<PlannedBuffer> buffers;
  for (size_t i = 0; i < count; ++i) {
    const int64_t lower = static_cast<int64_t>(random()) % steps;
    const int64_t life = 1 + static_cast<int64_t>(random()) % (steps / 4 + 1);
    buffers.push_back({static_cast<int64_t>(i), lower, lower + life, static_cast<int64_t>(random()) % (max_size + 1)});
  }
  return buffers;
}

TEST(PlanMemory, RandomInstancesAreValidAndRepeatable) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const size_t count = 1 + random() % 60;
    const auto buffers = random_buffers(random, count, 1 + round, round % 3 == 0 ? 3 : 100000);
    for (const int64_t alignment : {int64_t{1}, int64_t{64}}) {
      const PlanMemoryOptions options{.alignment = alignment, .search_work = 1'000'000};
      const MemoryPlan plan = plan_memory(buffers, options);
      expect_valid(buffers, plan, alignment);
      if (alignment == 1) {
        EXPECT_EQ(plan.lower_bound, live_bytes_bound(buffers));
      }
      const MemoryPlan again = plan_memory(buffers, options);
      EXPECT_EQ(again.offsets, plan.offsets);
      const MemoryPlan greedy = plan_memory(buffers, {.alignment = alignment, .search_work = 0});
      expect_valid(buffers, greedy, alignment);
      EXPECT_LE(plan.total, greedy.total);
    }
  }
}

TEST(PlanMemory, WorkedExamples) {
  EXPECT_EQ(plan_memory({}).total, 0);
  // A chain: each value is read by the next node only; two are alive at once.
  const MemoryPlan chain = plan_memory({{0, 0, 2, 64}, {1, 1, 3, 128}, {2, 2, 4, 64}, {3, 3, 5, 128}});
  EXPECT_EQ(chain.lower_bound, 192);
  EXPECT_EQ(chain.total, 192);
  // Ends before the other begins: the same place.
  const MemoryPlan reuse = plan_memory({{0, 0, 1, 100}, {1, 1, 2, 100}});
  EXPECT_EQ(reuse.offsets, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(reuse.total, 128);
  EXPECT_EQ(plan_memory({{0, 0, 1, 100}, {1, 1, 2, 100}}, {.alignment = 1}).total, 100);
  // No bytes: no conflict.
  EXPECT_EQ(plan_memory({{0, 0, 9, 0}, {1, 0, 9, 64}}).total, 64);
}

// If the search did nothing, no instance would come out smaller.
TEST(PlanMemory, TheSearchBeatsGreedyPlacement) {
  std::mt19937 random(1);
  int better = 0;
  for (int round = 0; round < 30; ++round) {
    const auto buffers = random_buffers(random, 60, 40, 20);
    const MemoryPlan greedy = plan_memory(buffers, {.alignment = 1, .search_work = 0});
    const MemoryPlan searched = plan_memory(buffers, {.alignment = 1, .search_work = 3'000'000});
    expect_valid(buffers, searched, 1);
    if (searched.total < greedy.total) ++better;
  }
  EXPECT_GT(better, 0);
}

TEST(PlanMemory, BadBuffersAreNamed) {
  const auto refused = [](const PlannedBuffer& buffer, int64_t alignment = 64) {
    try {
      plan_memory({{0, 0, 1, 128}, buffer}, {.alignment = alignment});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      return std::string(error.what());
    }
    ADD_FAILURE() << "no error";
    return std::string();
  };
  EXPECT_NE(refused({7, 3, 3, 64}).find("buffer 7 lives from 3 to 3"), std::string::npos);
  EXPECT_NE(refused({7, 3, 2, 64}).find("buffer 7"), std::string::npos);
  EXPECT_NE(refused({7, 0, 1, -1}).find("buffer 7 has -1 bytes"), std::string::npos);
  EXPECT_NE(refused({7, 0, 1, (int64_t{1} << 62) - 64}).find("sum"), std::string::npos);
  EXPECT_NE(refused({7, 0, 1, INT64_MAX}).find("buffer 7"), std::string::npos);
  for (const int64_t alignment : {0, -64, 48})
    EXPECT_NE(refused({7, 0, 1, 1}, alignment).find("alignment"), std::string::npos);
}

TEST(PlanMemory, ManyBuffersAreStillPlanned) {
  std::mt19937 random(2);
  const auto buffers = random_buffers(random, 3000, 3000, 1000);
  expect_valid(buffers, plan_memory(buffers, {.search_work = 1'000'000}), 64);
}

// Public instances: ATB_SHARED, else "shared" beside the repository.
std::filesystem::path instance_path(const std::string& name) {
  const char* shared = std::getenv("ATB_SHARED");
  const std::filesystem::path root =
      shared != nullptr ? std::filesystem::path(shared) : std::filesystem::path(ATB_TEST_DATA) / ".." / ".." / "shared";
  return root / "cases" / "planner" / name;
}

struct Instance {
  const char* file;
  double allowed;  // total over lower bound
};

class PlanMemoryInstance : public testing::TestWithParam<Instance> {};

TEST_P(PlanMemoryInstance, IsNearTheLowerBound) {
  const std::filesystem::path path = instance_path(GetParam().file);
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const std::vector<PlannedBuffer> buffers = test::read_planner_instance(path);
  const MemoryPlan plan = plan_memory(buffers);
  expect_valid(buffers, plan, 64);
  const double ratio = static_cast<double>(plan.total) / static_cast<double>(plan.lower_bound);
  EXPECT_LE(ratio, GetParam().allowed);
  RecordProperty("ratio", std::to_string(ratio));
}

INSTANTIATE_TEST_SUITE_P(Public, PlanMemoryInstance,
                         testing::Values(Instance{"minimalloc_A.csv", 1.05}, Instance{"minimalloc_B.csv", 1.05},
                                         Instance{"minimalloc_C.csv", 1.05}, Instance{"minimalloc_D.csv", 1.08},
                                         Instance{"minimalloc_E.csv", 1.05}, Instance{"minimalloc_F.csv", 1.05},
                                         Instance{"minimalloc_G.csv", 1.05}, Instance{"somas_resnet50.csv", 1.002}));

}  // namespace
}  // namespace atb
