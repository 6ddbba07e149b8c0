// SPDX-License-Identifier: Apache-2.0
// B04, first half: half-split and interleaved rotary are different rotations.
#include <gtest/gtest.h>

#include "ops/kernel_harness.h"

namespace atb::testing {
namespace {

// d = 4, theta 10000, position 1, x = (1, 0, 0, 0).
TEST(B04RopeLayout, HalfSplitAndInterleaved) {
  const OpRun table = run_op({.op = "rotary_table", .inputs = {integers({1}, {1}), weight({2}, {1.0f, 0.01f})}});
  const std::vector<std::vector<double>> expected = {{0.5403023, 0, 0.8414710, 0}, {0.5403023, 0.8414710, 0, 0}};
  for (const bool interleaved : {false, true}) {
    const OpRun run = run_op({.op = "rotary",
                              .inputs = {activation({1, 1, 4}, {1, 0, 0, 0}), activation({1, 2}, table.kernel[0].f),
                                         activation({1, 2}, table.kernel[1].f)},
                              .attrs = {{"interleaved", interleaved}}});
    for (const RefTensor<float>& result : {run.kernel[0], run.f32[0]}) {
      for (size_t i = 0; i < 4; ++i)
        EXPECT_NEAR(result.f[i], expected[interleaved][i], 1e-7) << interleaved << " " << i;
    }
  }
}

}  // namespace
}  // namespace atb::testing
