// SPDX-License-Identifier: Apache-2.0
// Stopping: lists of stop tokens (B38), lengths (B44), words for the reasons.
#include "runtime/generate/stopping.h"

#include <gtest/gtest.h>

namespace atb {
namespace {

TEST(StopCondition, AnyTokenOfTheListStops) {
  const StopCondition stop({106, 1, 106}, 100);
  EXPECT_EQ(stop.after(106, 1), FinishReason::kStop);
  EXPECT_EQ(stop.after(1, 99), FinishReason::kStop);
  EXPECT_EQ(stop.after(2, 99), FinishReason::kNone);
  EXPECT_EQ(stop.after(2, 100), FinishReason::kLength);
  EXPECT_EQ(stop.after(1, 100), FinishReason::kStop);
}

TEST(StopCondition, NoStopTokensAndNoTokensAtAll) {
  const StopCondition stop({}, 0);
  EXPECT_FALSE(stop.is_stop_token(0));
  EXPECT_EQ(stop.at_start(), FinishReason::kLength);
  EXPECT_EQ(StopCondition({}, 1).at_start(), FinishReason::kNone);
  EXPECT_EQ(StopCondition({}, 1).after(0, 1), FinishReason::kLength);
}

TEST(FinishReason, Names) {
  EXPECT_EQ(finish_reason_name(FinishReason::kNone), "");
  EXPECT_EQ(finish_reason_name(FinishReason::kStop), "stop");
  EXPECT_EQ(finish_reason_name(FinishReason::kLength), "length");
  EXPECT_EQ(finish_reason_name(FinishReason::kCancelled), "cancelled");
}

}  // namespace
}  // namespace atb
