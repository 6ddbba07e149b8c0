// SPDX-License-Identifier: Apache-2.0
// sum, mean, max and cumsum beyond the table of cases: hand-worked values, extremes and messages.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/error_text.h"
#include "ops/kernel_harness.h"

namespace atb::testing {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();
const Operand kTwoRows = activation({2, 3}, {0, 1, 2, 10, 11, 12});

RefTensor<float> result(const std::string& op, Operand x, Attrs attrs) {
  const OpRun run = run_op({.op = op, .inputs = {std::move(x)}, .attrs = std::move(attrs)});
  EXPECT_EQ(run.kernel[0].shape, run.f64[0].shape);
  EXPECT_EQ(run.kernel[0].i, run.f64[0].i);
  return run.kernel[0];
}

TEST(Reduce, HandWorked) {
  EXPECT_EQ(result("sum", kTwoRows, {{"axes", Ints{1}}}).f, (Floats{3, 33}));
  EXPECT_EQ(result("sum", kTwoRows, {{"axes", Ints{-2}}}).f, (Floats{10, 12, 14}));
  EXPECT_EQ(result("sum", kTwoRows, {}).f, (Floats{36}));
  EXPECT_EQ(result("mean", kTwoRows, {{"axes", Ints{0, 1}}}).f, (Floats{6}));
  EXPECT_EQ(result("max", kTwoRows, {{"axes", Ints{1}}}).f, (Floats{2, 12}));
  const RefTensor<float> kept = result("mean", kTwoRows, {{"axes", Ints{-1}}, {"keep", true}});
  EXPECT_EQ(kept.shape, (Ints{2, 1}));
  EXPECT_EQ(kept.f, (Floats{1, 11}));
  EXPECT_EQ(result("sum", activation({}, {5}), {}).f, (Floats{5}));
}

TEST(Reduce, IntegersAndBools) {
  const RefTensor<float> count = result("sum", integers({4}, {1, 0, 1, 1}, DType::kBool), {});
  EXPECT_EQ(count.dtype, DType::kI64);
  EXPECT_EQ(count.i, (Ints{3}));
  EXPECT_EQ(result("sum", integers({2}, {2147483647, 2147483647}), {}).i, (Ints{4294967294}));
  EXPECT_EQ(result("max", integers({2, 2}, {0, 0, 0, 1}, DType::kBool), {{"axes", Ints{1}}}).i, (Ints{0, 1}));
  EXPECT_EQ(result("max", integers({3}, {-5, -2, -9}, DType::kI64), {}).i, (Ints{-2}));
}

TEST(Reduce, ExtremesAndNothing) {
  EXPECT_EQ(result("max", activation({1, 2}, {-kInf, -kInf}), {{"axes", Ints{1}}}).f, (Floats{-kInf}));
  EXPECT_TRUE(std::isnan(result("max", activation({3}, {1, NAN, 2}), {}).f[0]));
  EXPECT_EQ(result("sum", activation({2, 0}, {}), {{"axes", Ints{1}}}).f, (Floats{0, 0}));
  EXPECT_TRUE(result("sum", activation({2, 0}, {}), {{"axes", Ints{0}}}).f.empty());
}

TEST(Reduce, SaysWhatDoesNotFit) {
  expect_refused({.op = "sum", .inputs = {kTwoRows}, .attrs = {{"axes", Ints{2}}}}, "axis 2 is not in [-2, 2)");
  expect_refused({.op = "sum", .inputs = {kTwoRows}, .attrs = {{"axes", Ints{1, -1}}}}, "axis -1 is given twice");
  expect_refused({.op = "mean", .inputs = {integers({1}, {1})}}, "must be a float tensor");
  expect_refused({.op = "max", .inputs = {activation({2, 0}, {})}, .attrs = {{"axes", Ints{1}}}}, "axis 1 is empty");
}

TEST(Cumsum, HandWorked) {
  EXPECT_EQ(result("cumsum", kTwoRows, {{"axis", int64_t{1}}}).f, (Floats{0, 1, 3, 10, 21, 33}));
  EXPECT_EQ(result("cumsum", kTwoRows, {{"axis", int64_t{-2}}}).f, (Floats{0, 1, 2, 10, 12, 14}));
  const RefTensor<float> positions =
      result("cumsum", integers({2, 4}, {0, 0, 1, 1, 1, 1, 1, 1}, DType::kBool), {{"axis", int64_t{-1}}});
  EXPECT_EQ(positions.dtype, DType::kI64);
  EXPECT_EQ(positions.i, (Ints{0, 0, 1, 2, 1, 2, 3, 4}));
  expect_refused({.op = "cumsum", .inputs = {kTwoRows}, .attrs = {{"axis", int64_t{2}}}}, "axis 2 is not in [-2, 2)");
}

}  // namespace
}  // namespace atb::testing
