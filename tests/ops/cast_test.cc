// SPDX-License-Identifier: Apache-2.0
// cast beyond the table of cases: rounding, ranges, NaN and messages.
#include <limits>
#include <string>
#include <vector>

#include "ops/error_text.h"
#include "ops/kernel_harness.h"

namespace atb::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

OpCase cast(Operand x, const std::string& dtype) {
  return {.op = "cast", .inputs = {std::move(x)}, .attrs = {{"dtype", dtype}}};
}

RefTensor<float> result(Operand x, const std::string& dtype) {
  const OpRun run = run_op(cast(std::move(x), dtype));
  EXPECT_TRUE(same_bits(run.kernel[0], run.f32[0])) << dtype;
  return run.kernel[0];
}

TEST(Cast, HalvesRoundToNearestEven) {
  // Eight bits of bf16: 1 + 2^-8 is a tie and goes to the even 1, 1 + 3 * 2^-8 to 1 + 2^-6.
  EXPECT_EQ(result(activation({3}, {1 + 0x1p-8f, 1 + 3 * 0x1p-8f, 1 + 0x1.2p-8f}), "bf16").f,
            (std::vector<float>{1, 1 + 0x1p-6f, 1 + 0x1p-7f}));
  // Eleven bits of f16; beyond 65504 is infinity.
  EXPECT_EQ(result(activation({3}, {1 + 0x1p-11f, 65504, 65520}), "f16").f, (std::vector<float>{1, 65504, kInf}));
}

TEST(Cast, FloatsLoseTheirFraction) {
  EXPECT_EQ(result(activation({5}, {1.9f, -1.9f, -0.5f, 2.5f, 0}), "i64").i, (std::vector<int64_t>{1, -1, 0, 2, 0}));
  EXPECT_EQ(result(activation({5}, {1.9f, -1.9f, -0.5f, 2.5f, 0}), "bool").i, (std::vector<int64_t>{1, 1, 1, 1, 0}));
}

TEST(Cast, BeyondTheRangeIsTheNearestThereIs) {
  const Operand x = activation({4}, {kInf, -1e30f, kNan, 300});
  EXPECT_EQ(result(x, "i32").i, (std::vector<int64_t>{2147483647, -2147483648LL, 0, 300}));
  EXPECT_EQ(result(x, "i8").i, (std::vector<int64_t>{127, -128, 0, 127}));
  EXPECT_EQ(result(x, "u8").i, (std::vector<int64_t>{255, 0, 0, 255}));
  EXPECT_EQ(result(x, "i64").i,
            (std::vector<int64_t>{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(), 0, 300}));
  EXPECT_EQ(result(x, "bool").i, (std::vector<int64_t>{1, 1, 1, 1}));
}

TEST(Cast, IntegersWrapAround) {
  const Operand x = integers({3}, {int64_t{1} << 32, (int64_t{1} << 32) + 5, -1}, DType::kI64);
  EXPECT_EQ(result(x, "i32").i, (std::vector<int64_t>{0, 5, -1}));
  EXPECT_EQ(result(x, "u8").i, (std::vector<int64_t>{0, 5, 255}));
  EXPECT_EQ(result(x, "bool").i, (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(result(integers({2}, {16777217, -3}), "f32").f, (std::vector<float>{16777216, -3}));
}

TEST(Cast, UnknownDtypesAreRefused) {
  const std::string part = ": use f32, f64, f16, bf16, i8, u8, i32, i64 or bool";
  expect_refused(cast(activation({1}, {1}), "float"), "dtype \"float\"" + part);
  expect_refused(cast(activation({1}, {1}), "state"), "dtype \"state\"" + part);
}

}  // namespace
}  // namespace atb::testing
