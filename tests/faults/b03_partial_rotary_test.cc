// SPDX-License-Identifier: Apache-2.0
// B03: partial rotary turns the first rotary_dim features only, with partners and frequencies of rotary_dim, not of the
// head.
#include <gtest/gtest.h>

#include <cstring>

#include "ops/kernel_harness.h"

namespace atb::testing {
namespace {

// head_dim 8, partial_rotary_factor 0.5, theta 10000, position 3, x = 1..8.
TEST(B03PartialRotary, BothLayouts) {
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
  const OpRun table = run_op({.op = "rotary_table", .inputs = {integers({1}, {3}), weight({2}, {1.0f, 0.01f})}});
  const std::vector<std::vector<double>> expected = {{-1.4133525, 1.8791181, -2.8288575, 4.0581911, 5, 6, 7, 8},
                                                     {-1.2722325, -1.8388650, 2.8786681, 4.0881866, 5, 6, 7, 8}};
  for (const bool interleaved : {false, true}) {
    const OpRun run = run_op({.op = "rotary",
                              .inputs = {activation({1, 1, 8}, x), activation({1, 2}, table.kernel[0].f),
                                         activation({1, 2}, table.kernel[1].f)},
                              .attrs = {{"interleaved", interleaved}}});
    for (const RefTensor<float>& result : {run.kernel[0], run.f32[0]}) {
      for (size_t i = 0; i < 8; ++i)
        EXPECT_NEAR(result.f[i], expected[interleaved][i], 5e-7) << interleaved << " " << i;
      EXPECT_EQ(std::memcmp(&result.f[4], &x[4], 4 * sizeof(float)), 0) << "the tail must be the input's bits";
    }
  }
}

}  // namespace
}  // namespace atb::testing
