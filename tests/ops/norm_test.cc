// SPDX-License-Identifier: Apache-2.0
// Norms beyond the table of cases: hand-worked rows, wide rows alone and among others, no rows, bad shapes.
#include <vector>

#include "ops/kernel_harness.h"

namespace atb::testing {
namespace {

std::vector<OpCase> norm_cases(int64_t rows, int64_t width, size_t misalign) {
  const uint32_t seed = static_cast<uint32_t>(width);
  const Operand x = activation({rows, width}, random_values(rows * width, seed, 3.0f));
  const Operand residual = activation({rows, width}, random_values(rows * width, seed + 100, 2.0f));
  const Operand w = weight({width}, random_values(width, seed + 200));
  const Operand b = weight({width}, random_values(width, seed + 300));
  const Attrs eps{{"eps", 1e-5}};
  const Attrs rms{{"eps", 1e-5}, {"kind", "rms"}};
  const Attrs layer{{"eps", 1e-5}, {"kind", "layer"}};
  std::vector<OpCase> cases = {
      {.op = "rms_norm", .inputs = {x, w}, .attrs = eps},
      {.op = "rms_norm", .inputs = {x, activation({width}, random_values(width, seed + 200))}, .attrs = eps},
      {.op = "layer_norm", .inputs = {x}, .attrs = eps},
      {.op = "layer_norm", .inputs = {x, w}, .attrs = eps},
      {.op = "layer_norm", .inputs = {x, w, b}, .attrs = eps},
      {.op = "layer_norm", .inputs = {x, no_operand(), b}, .attrs = eps},
      {.op = "fused_add_norm", .inputs = {residual, x, w}, .attrs = rms},
      {.op = "fused_add_norm", .inputs = {residual, x, w, b}, .attrs = layer},
  };
  for (OpCase& test : cases) test.misalign = misalign;
  return cases;
}

TEST(Norm, OneRowHasTheBitsItHasAmongMany) {
  for (const int64_t width : {1, 7, 8, 31, 64, 576, 1000}) {
    const std::vector<OpCase> many = norm_cases(9, width, 0);
    for (size_t c = 0; c < many.size(); ++c) {
      const OpRun all = run_op(many[c]);
      for (int64_t row = 0; row < 9; ++row) {
        OpCase one = many[c];
        for (Operand& operand : one.inputs) {
          if (!operand.tensor || operand.tensor->shape.size() != 2) continue;
          const std::vector<float>& values = operand.tensor->f;
          operand = activation({1, width}, {values.begin() + row * width, values.begin() + (row + 1) * width});
        }
        one.misalign = 4 * static_cast<size_t>(row);
        one.with_reference = false;
        const OpRun alone = run_op(one);
        for (size_t i = 0; i < alone.kernel.size(); ++i) {
          const std::vector<float> expected(all.kernel[i].f.begin() + row * width,
                                            all.kernel[i].f.begin() + (row + 1) * width);
          EXPECT_EQ(alone.kernel[i].f, expected) << one.op << " width " << width << " row " << row;
        }
      }
    }
  }
}

TEST(Norm, HandWorkedRmsNorm) {
  // mean of squares of (3, 4) is 12.5; eps 3.5 makes the root exactly 4.
  const OpRun run =
      run_op({.op = "rms_norm", .inputs = {activation({1, 2}, {3, 4}), weight({2}, {2, -8})}, .attrs = {{"eps", 3.5}}});
  EXPECT_EQ(run.f64[0].f, (std::vector<double>{1.5, -8}));
  EXPECT_EQ(run.kernel[0].f, (std::vector<float>{1.5f, -8}));
}

TEST(Norm, HandWorkedFusedAddLayerNorm) {
  // sum (2, 6): mean 4, variance 4, eps 0: (-1, 1), times (10, 10) plus (1, 2).
  const OpRun run = run_op(
      {.op = "fused_add_norm",
       .inputs = {activation({1, 2}, {1, 2}), activation({1, 2}, {1, 4}), weight({2}, {10, 10}), weight({2}, {1, 2})},
       .attrs = {{"eps", 0.0}, {"kind", "layer"}}});
  EXPECT_EQ(run.kernel[0].f, (std::vector<float>{-9, 12}));
  EXPECT_EQ(run.kernel[1].f, (std::vector<float>{2, 6}));
  EXPECT_EQ(run.f64[0].f, (std::vector<double>{-9, 12}));
}

TEST(Norm, NoRows) {
  const OpRun run = run_op({.op = "rms_norm",
                            .inputs = {activation({0, 8}, {}), weight({8}, random_values(8, 1))},
                            .attrs = {{"eps", 1e-5}}});
  EXPECT_TRUE(run.kernel[0].f.empty());
  EXPECT_EQ(run.kernel[0].shape, (std::vector<int64_t>{0, 8}));
}

TEST(Norm, RefusesAWeightOfAnotherWidth) {
  const OpCase test{
      .op = "rms_norm", .inputs = {activation({1, 4}, {1, 2, 3, 4}), weight({3}, {1, 1, 1})}, .attrs = {{"eps", 1e-5}}};
  EXPECT_THROW(run_op(test), Error);
}

}  // namespace
}  // namespace atb::testing
