// SPDX-License-Identifier: Apache-2.0
// Log lines: their form, levels and the sink.
#include "core/log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"

namespace atb {
namespace {

TEST(Log, LinesHaveOneFormAndLevelsFilter) {
  std::vector<std::string> lines;
  const LogLevel before = log_level();
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  set_log_level(LogLevel::kInfo);
  log(LogLevel::kDebug, "GraphOptimizer", "unseen");
  log(LogLevel::kInfo, "GraphOptimizer", "Pattern SDPA matched at layer 0");
  set_log_level(LogLevel::kOff);
  log(LogLevel::kError, "x", "unseen");
  set_log_sink(nullptr);
  set_log_level(before);
  EXPECT_EQ(lines, std::vector<std::string>{"[GraphOptimizer] Pattern SDPA matched at layer 0"});
}

TEST(Log, LevelsByName) {
  EXPECT_EQ(log_level_from_name("debug"), LogLevel::kDebug);
  EXPECT_EQ(log_level_from_name("off"), LogLevel::kOff);
  EXPECT_THROW(log_level_from_name("loud"), Error);
}

}  // namespace
}  // namespace atb
