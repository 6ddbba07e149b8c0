// SPDX-License-Identifier: Apache-2.0
// B24: a norm takes up a product only with a weight of its last axis, and never a value that it is about to remove.
#include <cmath>

#include "graph_rig.h"

namespace atb::testing {
namespace {

// %n = x / rms(x) of %x; `type` is that of x, `row` that of its mean. `constant` is a line that declares one more.
std::string rms(const std::string& type, const std::string& row, const std::string& constant = "") {
  return constant + R"(
  const @eps : f32[] = 1e-05
  %square = mul(%x, %x) : )" +
         type + R"(
  %mean = mean(%square) {axes=[-1], keep=true} : )" +
         row + R"(
  %inside = add(%mean, @eps) : )" +
         row + R"(
  %root = sqrt(%inside) : )" +
         row + R"(
  %n = div(%x, %root) : )" +
         type + "\n";
}

TEST(B24NormWeights, AScaleThatWidensTheRowIsNoWeight) {
  const auto graph = compiled("%x: f32[1, 1]", rms("f32[1, 1]", "f32[1, 1]", "const @s : f32[2] = [3.0, -2.0]") +
                                                   R"(  %y = mul(%n, @s) : f32[1, 2]
  return %y)");
  const Tensor y = run(*graph, {floats({1, 1}, {0.5F})})[0];
  EXPECT_EQ(y.shape, (std::vector<int64_t>{1, 2}));
  const double n = 0.5 / std::sqrt(0.25 + 1e-5);
  EXPECT_NEAR(values(y)[0], 3 * n, 1e-6);
  EXPECT_NEAR(values(y)[1], -2 * n, 1e-6);
}

TEST(B24NormWeights, ALayerNormWithGammaOfThreeAxes) {
  const auto graph = compiled("%x: f32[1, 2, 2], %r: f32[1, 2, 2]", R"(
  const @gamma : f32[1, 1, 2] = [2.0, 3.0]
  const @beta : f32[2] = [0.5, -0.5]
  const @eps : f32[] = 1e-05
  %h = add(%r, %x) : f32[1, 2, 2]
  %mean = mean(%h) {axes=[-1], keep=true} : f32[1, 2, 1]
  %d = sub(%h, %mean) : f32[1, 2, 2]
  %square = mul(%d, %d) : f32[1, 2, 2]
  %variance = mean(%square) {axes=[-1], keep=true} : f32[1, 2, 1]
  %inside = add(%variance, @eps) : f32[1, 2, 1]
  %root = sqrt(%inside) : f32[1, 2, 1]
  %n = div(%d, %root) : f32[1, 2, 2]
  %scaled = mul(%n, @gamma) : f32[1, 2, 2]
  %y = add(%scaled, @beta) : f32[1, 2, 2]
  return %y, %h)");
  EXPECT_TRUE(has(*graph, "fused_add_norm"));
  const auto out = run(*graph, {floats({1, 2, 2}, {1, 2, 3, 5}), floats({1, 2, 2}, {0, 1, 0, 0})});
  EXPECT_EQ(values(out[1]), (std::vector<float>{1, 3, 3, 5}));
  const double n = 1 / std::sqrt(1 + 1e-5);  // both rows are mean -1, +1
  const std::vector<double> expected = {-2 * n + 0.5, 3 * n - 0.5, -2 * n + 0.5, 3 * n - 0.5};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(values(out[0])[i], expected[i], 1e-6);
}

// A vector input: the quotient has the shape of a weight itself.
TEST(B24NormWeights, VectorsWhoseQuotientLooksLikeAWeight) {
  const auto graph = compiled("%x: f32[3]", rms("f32[3]", "f32[1]", "const @w : f32[3] = [1.0, 2.0, 3.0]") +
                                                R"(  %weighted = mul(@w, %n) : f32[3]
  %y = mul(%weighted, %n) : f32[3]
  return %y)");
  const std::vector<float> x = {1, -2, 0.5};
  const auto y = values(run(*graph, {floats({3}, x)})[0]);
  const double rms = std::sqrt((1 + 4 + 0.25) / 3 + 1e-5);
  for (size_t i = 0; i < 3; ++i) {
    const double n = static_cast<double>(x[i]) / rms;
    EXPECT_NEAR(y[i], n * n * static_cast<double>(i + 1), 1e-5);
  }
}

TEST(B24NormWeights, ANormThatIsItsOwnWeight) {
  const auto graph = compiled("%x: f32[3]", rms("f32[3]", "f32[1]") + R"(  %y = mul(%n, %n) : f32[3]
  return %y)");
  const auto y = values(run(*graph, {floats({3}, {1, -2, 0.5})})[0]);
  EXPECT_NEAR(y[1], 4 / ((1 + 4 + 0.25) / 3 + 1e-5), 1e-5);
}

}  // namespace
}  // namespace atb::testing
