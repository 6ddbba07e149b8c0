// SPDX-License-Identifier: Apache-2.0
// B58: the CPU quota of a container bounds the team, whatever the host has.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/cgroup.h"
#include "core/thread_team.h"

namespace atb {
namespace {

// CPUs that a process sees whose unified group has these contents of cpu.max.
int cpus_under(const std::string& cpu_max) {
  const auto dir = std::filesystem::path(testing::TempDir()) / "atb_b58";
  std::filesystem::create_directories(dir / "fs");
  std::ofstream(dir / "membership") << "0::/\n";
  std::ofstream(dir / "fs/cpu.max") << cpu_max << "\n";
  const int cpus = available_cpus_under({(dir / "fs").string(), (dir / "membership").string()});
  std::filesystem::remove_all(dir);
  return cpus;
}

TEST(B58CpuQuota, TheTeamFitsTheQuota) {
  EXPECT_LE(cpus_under("200000 100000"), 2);
  EXPECT_EQ(cpus_under("100000 100000"), 1);
  EXPECT_EQ(cpus_under("50000 100000"), 1);
  EXPECT_LE(cpus_under("150000 100000"), 2);  // rounded up
  EXPECT_EQ(cpus_under("max 100000"), cpus_under("900000000 100000"));
  EXPECT_LE(available_cpus(), cpus_under("max 100000"));
}

}  // namespace
}  // namespace atb
