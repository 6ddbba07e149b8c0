// SPDX-License-Identifier: Apache-2.0
// B11: a row that sees no key gives 0 under -inf and the mean of all values under the smallest float, never NaN, and
// does not disturb other rows, through two layers of a left-padded batch.
#include "run_graph.h"

namespace atb::testing {
namespace {

// Two layers of attention on one x [B, T, 4]; hidden keys are filled with `fill`.
std::string two_layers(const std::string& fill) {
  std::string text = R"(graph @layers(%x: f32[B, T, 4], %present: bool[B, T]) {
  symbols B in [1, 8], T in [1, 64]
  const @zero : f32[] = 0.0
  const @fill : f32[] = )" +
                     fill + R"(
  const @half : f32[] = 0.5
  %pos = iota() {shape=[T]} : i32[T]
  %rows = reshape(%pos) {shape=[T, 1]} : i32[T, 1]
  %columns = reshape(%pos) {shape=[1, T]} : i32[1, T]
  %causal = less_equal(%columns, %rows) : bool[T, T]
  %keys = reshape(%present) {shape=[B, 1, T]} : bool[B, 1, T]
  %seen = logical_and(%causal, %keys) : bool[B, T, T]
  %mask = where(%seen, @zero, @fill) : f32[B, T, T]
)";
  for (int layer = 0; layer < 2; ++layer) {
    const std::string l = std::to_string(layer);
    const std::string x = layer == 0 ? "%x" : "%out0";
    text += "  %scores" + l + " = matmul(" + x + ", " + x + ") {transpose_b=true} : f32[B, T, T]\n" + "  %scaled" + l +
            " = mul(%scores" + l + ", @half) : f32[B, T, T]\n" + "  %masked" + l + " = add(%scaled" + l +
            ", %mask) : f32[B, T, T]\n" + "  %probs" + l + " = softmax(%masked" + l + ") : f32[B, T, T]\n" + "  %out" +
            l + " = matmul(%probs" + l + ", " + x + ") : f32[B, T, 4]\n";
  }
  return text + "  return %out0, %out1\n}\n";
}

// The first sequence lacks its first two tokens.
Arrays left_padded() { return {{"x", scattered({2, 4, 4}, 5)}, {"present", truths({2, 4}, {0, 0, 1, 1, 1, 1, 1, 1})}}; }

TEST(B11MaskedRows, AreZeroUnderMinusInfinity) {
  const RanGraph ran = run_graph(two_layers("-inf"), left_padded());
  EXPECT_EQ(ran.count("flash_attention"), 2);
  EXPECT_TRUE(ran.find("flash_attention")->attrs().flag("causal"));
  ran.expect_equal();
  for (const std::vector<float>& output : ran.compiled) {
    for (size_t i = 0; i < 2 * 4; ++i) EXPECT_EQ(output[i], 0.0F);
    for (const float value : output) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(B11MaskedRows, AreTheMeanOfAllValuesUnderTheSmallestFloat) {
  const Arrays inputs = left_padded();
  const RanGraph ran = run_graph(two_layers("-3.4028235e+38"), inputs);
  EXPECT_EQ(ran.count("flash_attention"), 2);
  EXPECT_FALSE(ran.find("flash_attention")->attrs().flag("causal"));
  ran.expect_equal();
  const std::vector<double>& x = inputs.at("x").f;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(ran.compiled[0][i], (x[i] + x[4 + i] + x[8 + i] + x[12 + i]) / 4, 1e-6);
  }
}

// Rows of the other sequence are what they are without the first.
TEST(B11MaskedRows, DoNotDisturbOtherSequences) {
  Arrays both = left_padded();
  Arrays alone = both;
  alone["x"].f.erase(alone["x"].f.begin(), alone["x"].f.begin() + 16);
  alone["x"].shape[0] = 1;
  alone["present"] = truths({1, 4}, {1, 1, 1, 1});
  for (const char* fill : {"-inf", "-3.4028235e+38"}) {
    const RanGraph with = run_graph(two_layers(fill), both);
    const RanGraph without = run_graph(two_layers(fill), alone);
    for (size_t i = 0; i < 16; ++i) EXPECT_FLOAT_EQ(with.compiled[1][16 + i], without.compiled[1][i]);
  }
}

}  // namespace
}  // namespace atb::testing
