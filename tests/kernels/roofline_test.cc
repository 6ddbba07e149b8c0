// SPDX-License-Identifier: Apache-2.0
// Roofline: figures are finite and positive for any team and size; no claim about how fast the machine is.
#include "kernels/roofline.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/thread_team.h"

namespace atb {
namespace {

TEST(Roofline, FiguresArePositiveForAnyTeamAndSize) {
  for (int threads : {1, 2, 3}) {
    ThreadTeam team(threads);
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{3'000'001}}) {
      const double read = measure_read_gb_s(team, bytes, 0.0);
      EXPECT_TRUE(std::isfinite(read) && read > 0) << read;
    }
    const double peak = measure_f32_gflop_s(team, 0.0);
    EXPECT_TRUE(std::isfinite(peak) && peak > 0) << peak;
  }
}

TEST(Roofline, ReportsWhatItUsed) {
  ThreadTeam team(2);
  const Roofline roofline = measure_roofline(team, size_t{4} << 20);
  EXPECT_EQ(roofline.threads, 2);
  EXPECT_EQ(roofline.read_bytes, size_t{4} << 20);
  EXPECT_FALSE(roofline.target.empty());
}

TEST(Roofline, TooLittleMemoryIsAnError) {
  ThreadTeam team(1);
  try {
    measure_read_gb_s(team, size_t{1} << 50, 0.0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kResourceExhausted);
  }
}

}  // namespace
}  // namespace atb
