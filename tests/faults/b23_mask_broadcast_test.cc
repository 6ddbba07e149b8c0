// SPDX-License-Identifier: Apache-2.0
// B23: a mask of any broadcast form gives what the same mask gives expanded; one that does not broadcast is an error.
#include "core/error.h"
#include "run_graph.h"

namespace atb::testing {
namespace {

constexpr int64_t kBatch = 3, kHeads = 2, kTokens = 5, kWidth = 4;

std::string shape_text(const std::vector<std::string>& shape) {
  std::string text;
  for (const std::string& extent : shape) text += (text.empty() ? "" : ", ") + extent;
  return "f32[" + text + "]";
}

// Attention on [B, H, T, 4], or without heads on [B, T, 4], and a mask of that shape.
std::string attention(const std::vector<std::string>& mask, bool heads = true) {
  const std::string lead = heads ? "B, 2, " : "B, ";
  const std::string x = "f32[" + lead + "T, 4]";
  const std::string scores = "f32[" + lead + "T, T]";
  return "graph @attention(%q: " + x + ", %k: " + x + ", %v: " + x + ", %mask: " + shape_text(mask) + ") {\n" +
         "  symbols B in [1, 8], T in [1, 64]\n  const @half : f32[] = 0.5\n" +
         "  %scores = matmul(%q, %k) {transpose_b=true} : " + scores + "\n" +
         "  %scaled = mul(%scores, @half) : " + scores + "\n  %masked = add(%scaled, %mask) : " + scores +
         "\n  %probs = softmax(%masked) : " + scores + "\n  %out = matmul(%probs, %v) : " + x + "\n  return %out\n}\n";
}

Arrays inputs(bool heads, const std::vector<std::string>& mask) {
  const std::vector<int64_t> x =
      heads ? std::vector<int64_t>{kBatch, kHeads, kTokens, kWidth} : std::vector<int64_t>{kBatch, kTokens, kWidth};
  std::vector<int64_t> shape;
  for (const std::string& extent : mask) {
    shape.push_back(extent == "B" ? kBatch : extent == "T" ? kTokens : extent == "2" ? kHeads : 1);
  }
  return {{"q", scattered(x, 1)}, {"k", scattered(x, 7)}, {"v", scattered(x, 12)}, {"mask", scattered(shape, 4)}};
}

TEST(B23MaskBroadcast, EveryFormGivesWhatTheExpandedOneGives) {
  const std::vector<std::vector<std::string>> forms = {
      {"B", "1", "1", "T"}, {"B", "2", "1", "T"}, {"1", "1", "T", "1"}, {"T", "T"}, {"1", "T"},      {"T"},
      {"B", "1", "T", "T"}, {"1", "2", "T", "T"}, {"1", "1", "1", "1"}, {},         {"2", "T", "1"}, {"1", "1", "T"}};
  for (const std::vector<std::string>& form : forms) {
    const RanGraph ran = run_graph(attention(form), inputs(true, form));
    EXPECT_EQ(ran.count("flash_attention"), 1) << shape_text(form);
    ran.expect_equal();
  }
}

TEST(B23MaskBroadcast, WithoutHeads) {
  for (const std::vector<std::string>& form :
       std::vector<std::vector<std::string>>{{"B", "T", "T"}, {"B", "1", "T"}, {"1", "T", "1"}, {"T", "T"}}) {
    const RanGraph ran = run_graph(attention(form, false), inputs(false, form));
    EXPECT_EQ(ran.count("flash_attention"), 1) << shape_text(form);
    ran.expect_equal();
  }
}

// The sum with a mask of more axes is wider than the scores: nothing for the fused operator.
TEST(B23MaskBroadcast, AMaskOfMoreAxesThanTheScoresIsNotFused) {
  const std::string text = R"(graph @attention(%q: f32[B, T, 4], %mask: f32[2, B, T, T]) {
  symbols B in [1, 8], T in [1, 64]
  %scores = matmul(%q, %q) {transpose_b=true} : f32[B, T, T]
  %masked = add(%scores, %mask) : f32[2, B, T, T]
  %probs = softmax(%masked) : f32[2, B, T, T]
  %out = matmul(%probs, %q) : f32[2, B, T, 4]
  return %out
}
)";
  const RanGraph ran = run_graph(text, {{"q", scattered({3, 5, 4}, 1)}, {"mask", scattered({2, 3, 5, 5}, 4)}});
  EXPECT_EQ(ran.count("flash_attention"), 0);
  ran.expect_equal();
}

TEST(B23MaskBroadcast, OneThatDoesNotBroadcastIsAnError) {
  EXPECT_THROW(parse_graph(attention({"B", "1", "1", "7"})), Error);
  EXPECT_THROW(parse_graph(attention({"3", "T", "T"})), Error);
}

}  // namespace
}  // namespace atb::testing
