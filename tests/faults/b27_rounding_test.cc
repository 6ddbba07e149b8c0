// SPDX-License-Identifier: Apache-2.0
// B27: halves in the middle of a chain. What is returned has the bits that eager gives; mixed types follow promotion.
#include <cmath>

#include "graph_rig.h"

namespace atb::testing {
namespace {

float half(float x) { return bf16_to_f32(f32_to_bf16(x)); }

std::vector<float> wave(int64_t count, float step) {
  std::vector<float> result;
  for (int64_t i = 0; i < count; ++i) result.push_back(half(std::sin(static_cast<float>(i) * step) * 1.7F));
  return result;
}

// Eager rounds k * 0.5100697 to bf16; k and the product are returned, the product is a factor of the scores.
TEST(B27Rounding, ReturnedHalvesAreThoseOfEager) {
  const auto graph = compiled("%q: bf16[1, 4, 8], %k: bf16[1, 6, 8]", R"(
  const @scale : f32[] = 0.5100697
  %scaled = mul(%k, @scale) : bf16[1, 6, 8]
  %scores = matmul(%q, %scaled) {transpose_b=true} : bf16[1, 4, 6]
  return %scores, %scaled, %k)");
  const std::vector<float> q = wave(32, 0.37F), k = wave(48, 0.71F);
  const auto out = run(*graph, {bfloats({1, 4, 8}, q), bfloats({1, 6, 8}, k)});
  ASSERT_EQ(out[1].dtype, DType::kBF16);
  const auto scaled = values<uint16_t>(out[1]);
  const auto returned = values<uint16_t>(out[2]);
  for (size_t i = 0; i < k.size(); ++i) {
    EXPECT_EQ(scaled[i], f32_to_bf16(k[i] * 0.5100697F)) << i;
    EXPECT_EQ(returned[i], f32_to_bf16(k[i])) << i;
  }
  // Not further from exact than eager, which rounds the factor and the sum.
  const auto scores = values<uint16_t>(out[0]);
  double ours = 0, eager = 0;
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 6; ++j) {
      double exact = 0, sum = 0;
      for (size_t l = 0; l < 8; ++l) {
        exact += static_cast<double>(q[i * 8 + l]) * static_cast<double>(k[j * 8 + l]) * 0.5100697;
        sum += static_cast<double>(q[i * 8 + l]) * static_cast<double>(half(k[j * 8 + l] * 0.5100697F));
      }
      ours += std::pow(static_cast<double>(bf16_to_f32(scores[i * 6 + j])) - exact, 2);
      eager += std::pow(static_cast<double>(half(static_cast<float>(sum))) - exact, 2);
    }
  }
  EXPECT_LE(ours, eager);
}

// As a front door spells q f16 with k f32 and a mask in f32: casts where eager promotes.
TEST(B27Rounding, MixedTypesFollowTheCastsOfTheGraph) {
  const auto graph = compiled("%q: f16[1, 1, 2, 4], %k: f32[1, 1, 3, 4], %v: f32[1, 1, 3, 4], %mask: f32[2, 3]", R"(
  const @half : f16[] = 0.5
  %scaled = mul(%q, @half) : f16[1, 1, 2, 4]
  %wide = cast(%scaled) {dtype="f32"} : f32[1, 1, 2, 4]
  %scores = matmul(%wide, %k) {transpose_b=true} : f32[1, 1, 2, 3]
  %masked = add(%scores, %mask) : f32[1, 1, 2, 3]
  %p = softmax(%masked) : f32[1, 1, 2, 3]
  %y = matmul(%p, %v) : f32[1, 1, 2, 4]
  return %y)");
  std::vector<float> q = {0.5F, -1, 2, 0.25F, 1, 1, -0.5F, 0}, k = wave(12, 0.9F), v = wave(12, 0.4F);
  std::vector<uint16_t> bits;
  for (const float x : q) bits.push_back(f32_to_f16(x));
  const std::vector<float> mask = {0, -1, 0.5F, 0, 0, -INFINITY};
  const Tensor y = run(*graph, {tensor(DType::kF16, {1, 1, 2, 4}, bits), floats({1, 1, 3, 4}, k),
                                floats({1, 1, 3, 4}, v), floats({2, 3}, mask)})[0];
  ASSERT_EQ(y.dtype, DType::kF32);
  for (size_t i = 0; i < 2; ++i) {
    double weights[3], sum = 0;
    for (size_t j = 0; j < 3; ++j) {
      double score = static_cast<double>(mask[i * 3 + j]);
      for (size_t l = 0; l < 4; ++l)
        score += 0.5 * static_cast<double>(q[i * 4 + l]) * static_cast<double>(k[j * 4 + l]);
      sum += weights[j] = std::exp(score);
    }
    for (size_t l = 0; l < 4; ++l) {
      double expected = 0;
      for (size_t j = 0; j < 3; ++j) expected += weights[j] / sum * static_cast<double>(v[j * 4 + l]);
      EXPECT_NEAR(values(y)[i * 4 + l], expected, 1e-6);
    }
  }
}

// Types that no cast brings together are an error of the front door or stay as they are; they are never guessed at.
TEST(B27Rounding, AFusionNeedsOneType) {
  const auto graph = compiled("%x: f32[2, 4], %r: f32[2, 4]", R"(
  const @w : bf16[4] = [1.0, 2.0, 3.0, 4.0]
  const @eps : f32[] = 1e-05
  %h = add(%r, %x) : f32[2, 4]
  %square = mul(%h, %h) : f32[2, 4]
  %mean = mean(%square) {axes=[-1], keep=true} : f32[2, 1]
  %inside = add(%mean, @eps) : f32[2, 1]
  %root = rsqrt(%inside) : f32[2, 1]
  %n = mul(%h, %root) : f32[2, 4]
  %low = cast(%n) {dtype="bf16"} : bf16[2, 4]
  %y = mul(@w, %low) : bf16[2, 4]
  return %y)");
  const std::vector<float> x = wave(8, 0.3F);
  const Tensor y = run(*graph, {floats({2, 4}, x), floats({2, 4}, std::vector<float>(8, 0.25F))})[0];
  ASSERT_EQ(y.dtype, DType::kBF16);
  for (size_t row = 0; row < 2; ++row) {
    double squares = 0;
    for (size_t i = 0; i < 4; ++i) squares += std::pow(static_cast<double>(x[row * 4 + i]) + 0.25, 2);
    const double root = 1 / std::sqrt(squares / 4 + 1e-5);
    for (size_t i = 0; i < 4; ++i) {
      const double exact = (static_cast<double>(x[row * 4 + i]) + 0.25) * root * static_cast<double>(i + 1);
      EXPECT_NEAR(bf16_to_f32(values<uint16_t>(y)[row * 4 + i]), exact, std::abs(exact) / 200) << "half a bf16 step";
    }
  }
}

}  // namespace
}  // namespace atb::testing
