// SPDX-License-Identifier: Apache-2.0
// Thread team: every member runs, parked teams wake, errors and forks end at once.
#include "core/thread_team.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/error.h"

namespace atb {
namespace {

Code code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return Code::kInternal;
}

TEST(ThreadTeam, EveryMemberRunsOnceARun) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadTeam team(threads);
    EXPECT_EQ(team.size(), threads);
    std::vector<int> runs(static_cast<size_t>(threads), 0);
    for (int i = 0; i < 200; ++i) team.run([&](int worker) { ++runs[static_cast<size_t>(worker)]; });
    for (int count : runs) EXPECT_EQ(count, 200);
  }
}

TEST(ThreadTeam, CallerIsWorkerZero) {
  ThreadTeam team(2);
  const auto caller = std::this_thread::get_id();
  std::vector<std::thread::id> ids(2);
  team.run([&](int worker) { ids[static_cast<size_t>(worker)] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], caller);
  EXPECT_NE(ids[1], caller);
}

TEST(ThreadTeam, DefaultCountIsWhatTheProcessMayUse) {
  EXPECT_GE(available_cpus(), 1);
  EXPECT_EQ(ThreadTeam().size(), available_cpus());
}

TEST(ThreadTeam, ParkedWorkersWake) {
  ThreadTeam team(3);
  std::atomic<int> calls{0};
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(8));  // longer than a worker waits before it parks
    team.run([&](int) { calls.fetch_add(1); });
  }
  EXPECT_EQ(calls.load(), 15);
}

TEST(ThreadTeam, ParkedCallerWakes) {
  ThreadTeam team(3);
  std::atomic<int> finished{0};
  team.run([&](int worker) {
    if (worker == 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    finished.fetch_add(1);
  });
  EXPECT_EQ(finished.load(), 3);
}

TEST(ThreadTeam, KnowsWhoWasParked) {
  ThreadTeam team(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // far longer than a worker waits before it parks
  std::vector<int> parked(2, -1);
  team.run([&](int worker) { parked[static_cast<size_t>(worker)] = team.was_parked(worker) ? 1 : 0; });
  EXPECT_EQ(parked[0], 0);  // the caller
  EXPECT_EQ(parked[1], 1);
}

TEST(ThreadTeam, ParallelForCoversEachUnitOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadTeam team(threads);
    for (int64_t units : {0, 1, 2, 4, 5, 6, 97}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(units));
      team.parallel_for(units, [&](int64_t begin, int64_t end, int worker) {
        EXPECT_LT(worker, threads);
        for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)].fetch_add(1);
      });
      for (const auto& count : seen) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadTeam, ParallelForRethrowsAndStaysUsable) {
  ThreadTeam team(4);
  const auto fail = [&](int64_t begin, int64_t, int) {
    throw_error(Code::kDataLoss, "[test] part that begins at ", begin);
  };
  try {
    team.parallel_for(8, fail);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kDataLoss);
    EXPECT_STREQ(error.what(), "[test] part that begins at 0");  // the first in unit order, whoever was quicker
  }
  std::atomic<int> calls{0};
  team.run([&](int) { calls.fetch_add(1); });
  EXPECT_EQ(calls.load(), 4);
}

TEST(ThreadTeam, ReentryIsRefused) {
  for (int threads : {1, 2}) {
    ThreadTeam team(threads);
    Code inner = Code::kInternal;
    team.run([&](int worker) {
      if (worker == 0) inner = code_of([&] { team.run([](int) {}); });
    });
    EXPECT_EQ(inner, Code::kFailedPrecondition);
    team.run([](int) {});  // and the team still works
  }
}

TEST(ThreadTeam, BadCountsAreRefused) {
  EXPECT_EQ(code_of([] { ThreadTeam team(-1); }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([] { ThreadTeam team(1025); }), Code::kInvalidArgument);
}

// Public fault B59: a forked child must work or raise at once, never hang.
TEST(ThreadTeam, ForkedChildRaisesAndItsDestructorReturns) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not follow a fork of a threaded process";
#endif
  auto team = std::make_unique<ThreadTeam>(3);
  team->run([](int) {});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);  // a hang ends as a signal, which the parent reports
    int bad = 0;
    if (code_of([&] { team->run([](int) {}); }) != Code::kFailedPrecondition) bad |= 1;
    if (code_of([&] { team->parallel_for(7, [](int64_t, int64_t, int) {}); }) != Code::kFailedPrecondition) bad |= 2;
    team.reset();
    ThreadTeam fresh(2);
    std::atomic<int> calls{0};
    fresh.run([&](int) { calls.fetch_add(1); });
    if (calls.load() != 2) bad |= 4;
    _exit(bad);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  std::atomic<int> calls{0};
  team->run([&](int) { calls.fetch_add(1); });  // the parent's team is as before
  EXPECT_EQ(calls.load(), 3);
}

}  // namespace
}  // namespace atb
