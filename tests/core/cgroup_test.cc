// SPDX-License-Identifier: Apache-2.0
// Control group limits read from made-up trees: v1, v2, nested, namespaced, absent and broken ones (public fault B58).
#include "core/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace atb {
namespace {

class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::path(testing::TempDir()) / (std::string("atb_cgroup_") + info->name());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    paths_ = {(dir_ / "fs").string(), (dir_ / "membership").string()};
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((dir_ / path).parent_path());
    std::ofstream(dir_ / path) << text;
  }

  std::filesystem::path dir_;
  CgroupPaths paths_;
};

TEST_F(CgroupTest, NothingMountedMeansNoLimit) {
  EXPECT_FALSE(cgroup_cpu_quota(paths_));
  EXPECT_FALSE(cgroup_memory_headroom(paths_));
}

TEST_F(CgroupTest, UnifiedQuota) {
  write("membership", "0::/\n");
  write("fs/cpu.max", "200000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(paths_).value(), 2.0);
  write("fs/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(paths_).value(), 1.5);
  write("fs/cpu.max", "max 100000\n");
  EXPECT_FALSE(cgroup_cpu_quota(paths_));
}

TEST_F(CgroupTest, TightestEnclosingGroupWins) {
  write("membership", "0::/a/b\n");
  write("fs/cpu.max", "800000 100000\n");
  write("fs/a/cpu.max", "300000 100000\n");
  write("fs/a/b/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(paths_).value(), 3.0);
}

TEST_F(CgroupTest, VersionOneQuota) {
  write("membership", "5:cpu,cpuacct:/job\n3:cpuset:/elsewhere\n0::/\n");
  write("fs/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
  write("fs/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(paths_).value(), 4.0);
  write("fs/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_FALSE(cgroup_cpu_quota(paths_));
  write("fs/cpu/cpu.cfs_quota_us", "50000\n");  // also mounted under its short name, limit at the root
  write("fs/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(paths_).value(), 0.5);
}

TEST_F(CgroupTest, GroupOutsideTheNamespaceFallsBackToTheRoot) {
  write("membership", "0::/../../outside\n");
  write("fs/cpu.max", "100000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(paths_).value(), 1.0);
}

TEST_F(CgroupTest, BrokenContentsAreNoLimit) {
  write("membership", "garbage\n::\n0::/\n9:cpu\n");
  for (const char* text : {"", "x y", "100000 0", "0 100000", "-5 100000", "nan 100000", "12abc 100000"}) {
    write("fs/cpu.max", text);
    EXPECT_FALSE(cgroup_cpu_quota(paths_)) << text;
  }
}

TEST_F(CgroupTest, MemoryHeadroom) {
  write("membership", "0::/a\n");
  write("fs/a/memory.max", "1000000\n");
  write("fs/a/memory.current", "700000\n");
  write("fs/a/memory.stat", "anon 500000\nfile 200000\ninactive_file 150000\n");
  EXPECT_EQ(cgroup_memory_headroom(paths_).value(), 450000u);
  write("fs/a/memory.current", "5000000\n");
  EXPECT_EQ(cgroup_memory_headroom(paths_).value(), 0u);
  write("fs/a/memory.max", "max\n");
  EXPECT_FALSE(cgroup_memory_headroom(paths_));
}

TEST_F(CgroupTest, MemoryVersionOneHasAHugeNumberForNoLimit) {
  write("membership", "4:memory:/m\n");
  write("fs/memory/m/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(cgroup_memory_headroom(paths_));
  write("fs/memory/m/memory.limit_in_bytes", "4096000\n");
  write("fs/memory/m/memory.usage_in_bytes", "96000\n");
  EXPECT_EQ(cgroup_memory_headroom(paths_).value(), 4000000u);
}

}  // namespace
}  // namespace atb
