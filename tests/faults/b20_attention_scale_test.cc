// SPDX-License-Identifier: Apache-2.0
// B20: attention keeps the scale that is written, by mul or div, exact reciprocal or not; none is none, not 1 /
// sqrt(d).
#include "run_graph.h"

namespace atb::testing {
namespace {

// q = (1, 0), k = I, v = (1, 0)^T: the result is the weight of the first key.
double first_weight(const std::string& scale, bool fuses = true) {
  const std::string scaled = scale.empty() ? "" : "  %scaled = " + scale + " : f32[1, 1, 2]\n";
  const std::string text =
      "graph @attention(%q: f32[1, 1, 2], %k: f32[1, 2, 2], %v: f32[1, 2, 2]) {\n"
      "  const @three : f32[] = 3.0\n"
      "  const @third : f32[] = 0.33333334\n"
      "  const @root : f32[] = 0.35355338\n"
      "  %scores = matmul(%q, %k) {transpose_b=true} : f32[1, 1, 2]\n" +
      scaled + "  %probs = softmax(%" + (scale.empty() ? "scores" : "scaled") +
      ") : f32[1, 1, 2]\n"
      "  %out = matmul(%probs, %v) : f32[1, 1, 2]\n  return %out\n}\n";
  const RanGraph ran = run_graph(text, {{"q", floats({1, 1, 2}, {1, 0})},
                                        {"k", floats({1, 2, 2}, {1, 0, 0, 1})},
                                        {"v", floats({1, 2, 2}, {1, 0, 0, 0})}});
  EXPECT_EQ(ran.count("flash_attention"), fuses ? 1 : 0) << scale;
  ran.expect_equal(1e-6);
  return ran.compiled[0][0];
}

TEST(B20AttentionScale, IsTheOneThatIsWritten) {
  EXPECT_NEAR(first_weight("mul(%scores, @three)"), 0.9525741, 1e-6);
  EXPECT_NEAR(first_weight("mul(@three, %scores)"), 0.9525741, 1e-6);
  EXPECT_NEAR(first_weight("div(%scores, @three)"), 0.5825702, 1e-6);
  EXPECT_NEAR(first_weight("mul(%scores, @third)"), 0.5825702, 1e-6);
  EXPECT_NEAR(first_weight("div(%scores, @root)"), 1 / (1 + std::exp(-std::sqrt(8.0))), 1e-6);
  EXPECT_NEAR(first_weight(""), 0.7310586, 1e-6);
}

// Three over the scores is no scale of them.
TEST(B20AttentionScale, ADivisorIsNoScaleTheOtherWayRound) {
  const std::string text = R"(graph @attention(%q: f32[1, 1, 2], %k: f32[1, 2, 2], %v: f32[1, 2, 2]) {
  const @three : f32[] = 3.0
  %scores = matmul(%q, %k) {transpose_b=true} : f32[1, 1, 2]
  %scaled = div(@three, %scores) : f32[1, 1, 2]
  %probs = softmax(%scaled) : f32[1, 1, 2]
  %out = matmul(%probs, %v) : f32[1, 1, 2]
  return %out
}
)";
  const RanGraph ran = run_graph(
      text, {{"q", floats({1, 1, 2}, {1, 2})}, {"k", floats({1, 2, 2}, {1, 1, 2, 1})}, {"v", scattered({1, 2, 2}, 3)}});
  EXPECT_EQ(ran.count("flash_attention"), 0);
  ran.expect_equal();
}

}  // namespace
}  // namespace atb::testing
