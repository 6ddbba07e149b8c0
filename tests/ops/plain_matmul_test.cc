// SPDX-License-Identifier: Apache-2.0
// matmul and softmax: hand-worked batches, broadcasting, both layouts of b, masked rows.
#include <cmath>
#include <limits>
#include <vector>

#include "ops/kernel_harness.h"

namespace atb::testing {
namespace {

// What the kernel and the reference give: sums of few small integers are exact.
std::vector<double> result(const OpCase& test) {
  const OpRun run = run_op(test);
  EXPECT_EQ(std::vector<double>(run.kernel[0].f.begin(), run.kernel[0].f.end()), run.f64[0].f);
  return run.f64[0].f;
}

TEST(Matmul, BothLayoutsOfB) {
  const Operand a = activation({2, 2}, {1, 2, 3, 4});
  const Operand b = activation({2, 2}, {5, 6, 7, 8});
  EXPECT_EQ(result({.op = "matmul", .inputs = {a, b}}), (std::vector<double>{19, 22, 43, 50}));
  EXPECT_EQ(result({.op = "matmul", .inputs = {a, b}, .attrs = {{"transpose_b", true}}}),
            (std::vector<double>{17, 23, 39, 53}));
}

TEST(Matmul, LeadingDimsBroadcast) {
  const Operand a = activation({2, 1, 1, 2}, {1, 2, 3, 4});  // batches [2, 1] and [3]
  const Operand b = activation({3, 2, 1}, {1, 0, 0, 1, 1, 1});
  const OpRun run = run_op({.op = "matmul", .inputs = {a, b}});
  EXPECT_EQ(run.f64[0].shape, (std::vector<int64_t>{2, 3, 1, 1}));
  EXPECT_EQ(run.f64[0].f, (std::vector<double>{1, 2, 3, 3, 4, 7}));
}

TEST(Matmul, EmptySumsAreZero) {
  EXPECT_EQ(result({.op = "matmul", .inputs = {activation({2, 0}, {}), activation({0, 1}, {})}}),
            (std::vector<double>{0, 0}));
}

TEST(Matmul, RefusesOtherShapes) {
  const Operand a = activation({2, 3}, std::vector<float>(6));
  EXPECT_THROW(run_op({.op = "matmul", .inputs = {a, activation({2, 3}, std::vector<float>(6))}}), Error);
  EXPECT_THROW(run_op({.op = "matmul", .inputs = {a, activation({3}, std::vector<float>(3))}}), Error);
}

TEST(Softmax, RowsSumToOneOrAreFullyMasked) {
  const float inf = std::numeric_limits<float>::infinity();
  const OpRun run = run_op({.op = "softmax", .inputs = {activation({3, 2}, {-inf, -inf, 1e30f, -1e30f, -inf, 7})}});
  EXPECT_EQ(run.f32[0].f, (std::vector<float>{0, 0, 1, 0, 0, 1}));
  EXPECT_EQ(run.kernel[0].f, run.f32[0].f);
  EXPECT_THROW(run_op({.op = "softmax", .inputs = {activation({2, 2}, {1, 2, 3, 4})}, .attrs = {{"axis", int64_t{0}}}}),
               Error);
}

TEST(Softmax, OneNanMakesItsRowNan) {
  const float inf = std::numeric_limits<float>::infinity();
  const OpRun run = run_op({.op = "softmax", .inputs = {activation({3, 2}, {NAN, 1, -inf, NAN, 2, 2})}});
  for (const RefTensor<float>& out : {run.f32[0], run.kernel[0]}) {
    for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(out.f[i]));
    EXPECT_EQ(out.f[4], 0.5f);
  }
}

}  // namespace
}  // namespace atb::testing
