// SPDX-License-Identifier: Apache-2.0
// Elementwise operators beyond the table of cases: broadcasting on each side, hand-worked values, extremes.
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/kernel_harness.h"

namespace atb::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> positive(int64_t count, uint32_t seed) {
  std::vector<float> values = random_values(count, seed);
  for (float& value : values) value = std::abs(value) + 0.5f;
  return values;
}

// Exactly the interpreter's f32 result: the same scalar operations.
void expect_same_as_f32(const OpCase& test) {
  const OpRun run = run_op(test);
  ASSERT_EQ(run.kernel.size(), 1u) << test.op;
  EXPECT_TRUE(same_bits(run.kernel[0], run.f32[0])) << test.op;
}

TEST(Elementwise, BroadcastsEitherSide) {
  const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> shapes = {
      {{2, 3, 4}, {4}},
      {{4}, {2, 3, 4}},
      {{2, 3, 4}, {3, 1}},
      {{2, 1, 4}, {3, 1}},
      {{2, 3, 4}, {}},
      {{}, {2, 3, 4}},
      {{}, {}},
      {{2, 1}, {1, 5}},
      {{1}, {3}},
      {{5}, {1}},
      {{2, 0, 4}, {1, 4}},
      {{2, 3, 1, 4}, {1, 5, 1}},
      {{1, 1, 7}, {6, 1, 7}},
  };
  for (const auto& [a, b] : shapes) {
    const auto size = [](const std::vector<int64_t>& shape) {
      int64_t n = 1;
      for (const int64_t d : shape) n *= d;
      return n;
    };
    for (const char* op : {"add", "sub", "mul", "div", "less_equal"}) {
      expect_same_as_f32(
          {.op = op, .inputs = {activation(a, random_values(size(a), 1)), activation(b, positive(size(b), 2))}});
    }
  }
}

TEST(Elementwise, HandWorkedBroadcast) {
  const OpRun run = run_op({.op = "sub", .inputs = {activation({2, 1}, {10, 20}), activation({3}, {1, 2, 3})}});
  EXPECT_EQ(run.kernel[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(run.kernel[0].f, (std::vector<float>{9, 8, 7, 19, 18, 17}));
}

TEST(Elementwise, ShapesThatDoNotBroadcastAreRefused) {
  EXPECT_THROW(run_op({.op = "add", .inputs = {activation({2}, {1, 2}), activation({3}, {1, 2, 3})}}), Error);
}

TEST(Elementwise, Integers) {
  const Operand a = integers({2, 2}, {1, -2, 3, 2147483647});
  const Operand b = integers({2}, {5, 7});
  EXPECT_EQ(run_op({.op = "sub", .inputs = {a, b}}).kernel[0].i, (std::vector<int64_t>{-4, -9, -2, 2147483640}));
  EXPECT_EQ(run_op({.op = "mul", .inputs = {b, b}}).kernel[0].i, (std::vector<int64_t>{25, 49}));
  EXPECT_THROW(run_op({.op = "div", .inputs = {a, b}}), Error);
}

TEST(Elementwise, CausalMask) {
  const OpRun seen = run_op({.op = "less_equal", .inputs = {integers({1, 3}, {0, 1, 2}), integers({3, 1}, {0, 1, 2})}});
  EXPECT_EQ(seen.kernel[0].i, (std::vector<int64_t>{1, 0, 0, 1, 1, 0, 1, 1, 1}));
  EXPECT_TRUE(same_bits(seen.kernel[0], seen.f32[0]));
  const OpRun mask =
      run_op({.op = "where",
              .inputs = {integers({3, 3}, seen.kernel[0].i, DType::kBool), activation({}, {0}), weight({}, {-kInf})}});
  EXPECT_EQ(mask.kernel[0].f, (std::vector<float>{0, -kInf, -kInf, 0, 0, -kInf, 0, 0, 0}));
  EXPECT_TRUE(same_bits(mask.kernel[0], mask.f32[0]));
}

TEST(Elementwise, WhereBroadcasts) {
  const OpRun run = run_op({.op = "where",
                            .inputs = {integers({2, 1}, {1, 0}, DType::kBool), activation({3}, {1, 2, 3}),
                                       activation({2, 3}, {9, 8, 7, 6, 5, 4})}});
  EXPECT_EQ(run.kernel[0].f, (std::vector<float>{1, 2, 3, 6, 5, 4}));
  EXPECT_TRUE(same_bits(run.kernel[0], run.f32[0]));
}

TEST(Activation, KnownValues) {
  const auto value = [](const char* op, float x, Attrs attrs = {}) {
    return run_op({.op = op, .inputs = {activation({1}, {x})}, .attrs = std::move(attrs)}).f64[0].f[0];
  };
  EXPECT_NEAR(value("silu", 1), 0.7310585786300049, 1e-15);
  EXPECT_NEAR(value("gelu", 1), 0.8413447460685429, 1e-15);
  EXPECT_NEAR(value("gelu", 1, {{"approximate", "tanh"}}), 0.8411919906082768, 1e-15);
  EXPECT_EQ(value("relu", -2), 0);
  EXPECT_EQ(value("silu", 0), 0);
}

TEST(Activation, ExtremesStayFinite) {
  for (const char* op : {"silu", "gelu"}) {
    const OpRun run = run_op({.op = op, .inputs = {activation({4}, {-1e30f, -100, 100, 1e30f})}});
    EXPECT_EQ(run.kernel[0].f[3], 1e30f) << op;
    EXPECT_EQ(run.kernel[0].f[2], 100.0f) << op;
    EXPECT_NEAR(run.kernel[0].f[0], 0.0, 1e-30) << op;
    EXPECT_NEAR(run.kernel[0].f[1], 0.0, 1e-30) << op;
  }
}

}  // namespace
}  // namespace atb::testing
