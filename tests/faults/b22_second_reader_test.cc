// SPDX-License-Identifier: Apache-2.0
// B22: an inner value of a fusion that is a graph output or has a second reader stays what it is.
#include "run_graph.h"

namespace atb::testing {
namespace {

std::string attention(const std::string& more, const std::string& results) {
  return R"(graph @attention(%q: f32[B, T, 4], %k: f32[B, T, 4], %v: f32[B, T, 4]) {
  symbols B in [1, 8], T in [1, 64]
  const @half : f32[] = 0.5
  const @cap : f32[] = 3.0
  const @uncap : f32[] = 0.25
  %scores = matmul(%q, %k) {transpose_b=true} : f32[B, T, T]
  %scaled = mul(%scores, @uncap) : f32[B, T, T]
  %bounded = tanh(%scaled) : f32[B, T, T]
  %capped = mul(%bounded, @cap) : f32[B, T, T]
  %probs = softmax(%capped) : f32[B, T, T]
  %out = matmul(%probs, %v) : f32[B, T, 4]
)" + more +
         "  return " + results + "\n}\n";
}

Arrays inputs() {
  return {{"q", scattered({2, 5, 4}, 1)}, {"k", scattered({2, 5, 4}, 7)}, {"v", scattered({2, 5, 4}, 12)}};
}

void expect_kept(const std::string& text, int64_t fused) {
  const RanGraph ran = run_graph(text, inputs());
  EXPECT_EQ(ran.count("flash_attention"), fused) << text;
  ran.expect_equal();
}

TEST(B22SecondReader, OfAnyInnerValueOfAttention) {
  expect_kept(attention("", "%out"), 1);
  for (const char* inner : {"%scores", "%scaled", "%bounded", "%capped", "%probs"}) {
    expect_kept(attention("", std::string("%out, ") + inner), 0);
    expect_kept(attention("  %again = exp(" + std::string(inner) + ") : f32[B, T, T]\n", "%out, %again"), 0);
  }
}

TEST(B22SecondReader, OfASumBeforeANorm) {
  const std::string text = R"(graph @add_norm(%x: f32[T, 4], %y: f32[T, 4]) {
  symbols T in [1, 64]
  const @w : f32[4] = [1.0, 0.5, 2.0, 1.5]
  %sum = add(%x, %y) : f32[T, 4]
  %normed = rms_norm(%sum, @w) {eps=1e-05} : f32[T, 4]
  %again = mul(%sum, %sum) : f32[T, 4]
  return %sum, %normed, %again
}
)";
  const RanGraph ran = run_graph(text, {{"x", scattered({5, 4}, 1)}, {"y", scattered({5, 4}, 8)}});
  EXPECT_EQ(ran.count("fused_add_norm"), 1);
  ran.expect_equal();
}

TEST(B22SecondReader, OfRotatedKeys) {
  const std::string text = R"(graph @rotary(%x: f32[B, 2, T, 4]) {
  symbols B in [1, 8], T in [1, 64]
  const @inv_freq : f32[2] = [1.0, 0.1]
  %pos = iota() {shape=[T]} : i32[T]
  %cast = cast(%pos) {dtype="f32"} : f32[T]
  %column = reshape(%cast) {shape=[T, 1]} : f32[T, 1]
  %half = mul(%column, @inv_freq) : f32[T, 2]
  %angles = concat(%half, %half) {axis=1} : f32[T, 4]
  %cos = cos(%angles) : f32[T, 4]
  %sin = sin(%angles) : f32[T, 4]
  %low = slice(%x) {axis=3, bounds=[0, 2]} : f32[B, 2, T, 2]
  %high = slice(%x) {axis=3, bounds=[2, 4]} : f32[B, 2, T, 2]
  %negative = neg(%high) : f32[B, 2, T, 2]
  %turned = concat(%negative, %low) {axis=3} : f32[B, 2, T, 4]
  %a = mul(%x, %cos) : f32[B, 2, T, 4]
  %b = mul(%turned, %sin) : f32[B, 2, T, 4]
  %out = add(%a, %b) : f32[B, 2, T, 4]
  return %out, %turned, %a, %cos
}
)";
  const RanGraph ran = run_graph(text, {{"x", scattered({2, 2, 5, 4}, 3)}});
  EXPECT_EQ(ran.count("rotary"), 1);
  ran.expect_equal();
}

}  // namespace
}  // namespace atb::testing
