// SPDX-License-Identifier: Apache-2.0
// Norms written by hand become operators in every spelling; what only looks like a norm stays.
#include "canonical_testing.h"

namespace atb {
namespace {

using test::canonical;
using test::canonical_ops;
using test::find;

const char* const kX = "%x: f32[B, T, 6]";

// The chain of `hidden_states * rsqrt(variance + eps)`; `body` goes on from %n.
std::string rms(const std::string& body) {
  return R"(
  const @eps : f32[] = 1e-06
  %f = cast(%x) {dtype="f32"} : f32[B, T, 6]
  %square = mul(%f, %f) : f32[B, T, 6]
  %mean = mean(%square) {axes=[-1], keep=true} : f32[B, T, 1]
  %sum = add(%mean, @eps) : f32[B, T, 1]
  %root = rsqrt(%sum) : f32[B, T, 1]
  %n = mul(%f, %root) : f32[B, T, 6]
)" + body;
}

TEST(CanonicalNorms, RmsNormTakesItsWeightInEitherOrder) {
  for (const char* operands : {"@w, %c", "%c, @w"}) {
    const auto graph = canonical(kX, rms(R"(  const @w : f32[6]
  %c = cast(%n) {dtype="f32"} : f32[B, T, 6]
  %y = mul()" + std::string(operands) + R"() : f32[B, T, 6]
  return %y)"));
    ASSERT_EQ(test::ops(*graph), "rms_norm");
    EXPECT_EQ(find(*graph, "y")->attrs().real("eps"), 1e-6) << "the literal, not its f32";
    EXPECT_EQ(find(*graph, "y")->input(1)->name(), "w");
  }
}

TEST(CanonicalNorms, GemmaAddsOneToTheWeight) {
  const auto graph = canonical(kX, rms(R"(  const @w : f32[6]
  const @one : f32[] = 1.0
  %w1 = add(@w, @one) : f32[6]
  %y = mul(%n, %w1) : f32[B, T, 6]
  return %y)"));
  EXPECT_EQ(test::ops(*graph), "rms_norm");
  EXPECT_TRUE(find(*graph, "y")->input(1)->is_constant());
}

TEST(CanonicalNorms, NormsOfAConfigAloneKeepTheirWeightComputed) {
  auto graph = parse_graph(test::text_of(kX, rms(R"(  const @w : f32[6]
  const @one : f32[] = 1.0
  %w1 = add(@w, @one) : f32[6]
  %y = mul(%n, %w1) : f32[B, T, 6]
  return %y)")));
  canonicalize(*graph);
  eliminate_dead_code(*graph);
  EXPECT_EQ(test::ops(*graph), "add rms_norm");
}

TEST(CanonicalNorms, ANormWithoutWeightIsANormWithOnes) {
  const auto graph = canonical(kX, rms("  return %n"));
  EXPECT_EQ(test::ops(*graph), "rms_norm");
  EXPECT_EQ(find(*graph, "n")->input(1)->constant()->to_f32(), std::vector<float>(6, 1.0F));
}

TEST(CanonicalNorms, MeansRootsAndAxesInOtherSpellings) {
  EXPECT_EQ(canonical_ops(kX, R"(
  const @eps : f32[] = 1e-05
  const @two : f32[] = 2.0
  const @six : f32[] = 6.0
  const @w : f32[1, 1, 6]
  %square = pow(%x, @two) : f32[B, T, 6]
  %sum = sum(%square) {axes=[2]} : f32[B, T]
  %mean = div(%sum, @six) : f32[B, T]
  %column = reshape(%mean) {shape=[B, T, 1]} : f32[B, T, 1]
  %inside = add(@eps, %column) : f32[B, T, 1]
  %root = sqrt(%inside) : f32[B, T, 1]
  %n = div(%x, %root) : f32[B, T, 6]
  %y = mul(@w, %n) : f32[B, T, 6]
  return %y)"),
            "rms_norm");
  EXPECT_EQ(canonical_ops(kX, R"(
  const @eps : f32[] = 1e-05
  const @minus_half : f32[] = -0.5
  const @sixth : f32[] = 0.166666671
  %square = mul(%x, %x) : f32[B, T, 6]
  %sum = sum(%square) {axes=[-1], keep=true} : f32[B, T, 1]
  %mean = mul(%sum, @sixth) : f32[B, T, 1]
  %inside = add(%mean, @eps) : f32[B, T, 1]
  %root = pow(%inside, @minus_half) : f32[B, T, 1]
  %n = mul(%root, %x) : f32[B, T, 6]
  return %n)"),
            "rms_norm");
}

const char* const kLayerNorm = R"(
  const @eps : f32[] = 1e-05
  const @two : f32[] = 2.0
  const @w : f32[6]
  const @b : f32[6]
  %mean = mean(%x) {axes=[-1], keep=true} : f32[B, T, 1]
  %d = sub(%x, %mean) : f32[B, T, 6]
  %again = sub(%x, %mean) : f32[B, T, 6]
  %square = pow(%again, @two) : f32[B, T, 6]
  %variance = mean(%square) {axes=[-1], keep=true} : f32[B, T, 1]
  %inside = add(%variance, @eps) : f32[B, T, 1]
)";

TEST(CanonicalNorms, LayerNormByHand) {
  const auto graph = canonical(kX, std::string(kLayerNorm) + R"(
  %root = sqrt(%inside) : f32[B, T, 1]
  %n = div(%d, %root) : f32[B, T, 6]
  %scaled = mul(@w, %n) : f32[B, T, 6]
  %y = add(%scaled, @b) : f32[B, T, 6]
  return %y)");
  ASSERT_EQ(test::ops(*graph), "layer_norm");
  EXPECT_EQ(find(*graph, "y")->input(1)->name(), "w");
  EXPECT_EQ(find(*graph, "y")->input(2)->name(), "b");
  EXPECT_EQ(canonical_ops(kX, std::string(kLayerNorm) + R"(
  %root = rsqrt(%inside) : f32[B, T, 1]
  %n = mul(%d, %root) : f32[B, T, 6]
  return %n)"),
            "layer_norm");
}

TEST(CanonicalNorms, WeightsAndBiasesOfOperatorsWithoutThem) {
  EXPECT_EQ(canonical_ops(kX, R"(
  const @w : f32[6]
  const @b : f32[1, 1, 6]
  %n = layer_norm(%x) {eps=1e-05} : f32[B, T, 6]
  %scaled = mul(%n, @w) : f32[B, T, 6]
  %y = add(%scaled, @b) : f32[B, T, 6]
  return %y)"),
            "layer_norm");
}

// --- Near misses

TEST(CanonicalNorms, EpsOutsideOfTheRootIsAnotherFunction) {
  EXPECT_EQ(canonical_ops(kX, R"(
  const @eps : f32[] = 0.1
  %square = mul(%x, %x) : f32[B, T, 6]
  %mean = mean(%square) {axes=[-1], keep=true} : f32[B, T, 1]
  %root = sqrt(%mean) : f32[B, T, 1]
  %outside = add(%root, @eps) : f32[B, T, 1]
  %n = div(%x, %outside) : f32[B, T, 6]
  return %n)"),
            "mul mean sqrt add div");
}

TEST(CanonicalNorms, OtherAxesAreNoNorms) {
  for (const char* axes : {"[1]", "[1, 2]", "[0]"}) {
    const std::string shape = std::string(axes) == "[1]"   ? "[B, 1, 6]"
                              : std::string(axes) == "[0]" ? "[1, T, 6]"
                                                           : "[B, 1, 1]";
    EXPECT_EQ(canonical_ops(kX, R"(
  const @eps : f32[] = 0.1
  %square = mul(%x, %x) : f32[B, T, 6]
  %mean = mean(%square) {axes=)" + std::string(axes) +
                                    ", keep=true} : f32" + shape + R"(
  %inside = add(%mean, @eps) : f32)" +
                                    shape + R"(
  %root = rsqrt(%inside) : f32)" + shape +
                                    R"(
  %n = mul(%x, %root) : f32[B, T, 6]
  return %n)"),
              "mul mean add rsqrt mul")
        << axes;
  }
}

TEST(CanonicalNorms, AnUnbiasedVarianceIsNoLayerNorm) {
  EXPECT_EQ(canonical_ops(kX, R"(
  const @eps : f32[] = 1e-05
  const @five : f32[] = 5.0
  %mean = mean(%x) {axes=[-1], keep=true} : f32[B, T, 1]
  %d = sub(%x, %mean) : f32[B, T, 6]
  %square = mul(%d, %d) : f32[B, T, 6]
  %sum = sum(%square) {axes=[-1], keep=true} : f32[B, T, 1]
  %variance = div(%sum, @five) : f32[B, T, 1]
  %inside = add(%variance, @eps) : f32[B, T, 1]
  %root = rsqrt(%inside) : f32[B, T, 1]
  %n = mul(%d, %root) : f32[B, T, 6]
  return %n)"),
            "mean sub mul sum div add rsqrt mul");
}

TEST(CanonicalNorms, TheMeanOfAnotherValueIsNoNorm) {
  EXPECT_EQ(canonical_ops("%x: f32[B, T, 6], %y: f32[B, T, 6]", R"(
  const @eps : f32[] = 0.1
  %square = mul(%y, %y) : f32[B, T, 6]
  %mean = mean(%square) {axes=[-1], keep=true} : f32[B, T, 1]
  %inside = add(%mean, @eps) : f32[B, T, 1]
  %root = rsqrt(%inside) : f32[B, T, 1]
  %n = mul(%x, %root) : f32[B, T, 6]
  return %n)"),
            "mul mean add rsqrt mul");
  EXPECT_EQ(canonical_ops("%x: f32[B, T, 6], %y: f32[B, T, 6]", R"(
  const @eps : f32[] = 0.1
  %other = mul(%x, %y) : f32[B, T, 6]
  %mean = mean(%other) {axes=[-1], keep=true} : f32[B, T, 1]
  %abs = abs(%mean) : f32[B, T, 1]
  %inside = add(%abs, @eps) : f32[B, T, 1]
  %root = rsqrt(%inside) : f32[B, T, 1]
  %n = mul(%x, %root) : f32[B, T, 6]
  return %n)"),
            "mul mean abs add rsqrt mul");
}

TEST(CanonicalNorms, OnlyAConstantVectorOfTheLastAxisIsAWeight) {
  const auto with = [](const std::string& inputs, const std::string& factor, const std::string& declared) {
    std::string text = rms(declared + "  %y = mul(%n, " + factor + ") : f32[B, T, 6]\n  return %y");
    // With extents that vectors of tokens and of the batch can have.
    for (size_t at = 0; (at = text.find("B, T", at)) != std::string::npos;) text.replace(at, 4, "2, 5");
    return canonical_ops("%x: f32[2, 5, 6]" + inputs, text, {});
  };
  EXPECT_EQ(with("", "@w", "  const @w : f32[1, 1, 6]\n"), "rms_norm");
  EXPECT_EQ(with("", "@w", "  const @w : f32[1]\n"), "rms_norm mul") << "a scale, no weight";
  EXPECT_EQ(with("", "@w", "  const @w : f32[1, 5, 1]\n"), "rms_norm mul") << "of the tokens";
  EXPECT_EQ(with("", "@w", "  const @w : f32[2, 1, 6]\n"), "rms_norm mul") << "of the batch";
  EXPECT_EQ(with(", %w: f32[6]", "%w", ""), "rms_norm mul") << "an activation";
}

TEST(CanonicalNorms, WhatIsReadElsewhereStays) {
  EXPECT_EQ(canonical_ops(kX, rms(R"(  const @w : f32[6]
  %y = mul(%n, @w) : f32[B, T, 6]
  return %y, %n)")),
            "rms_norm mul");
  EXPECT_EQ(canonical_ops(kX, rms(R"(  const @w : f32[6]
  %y = mul(%n, @w) : f32[B, T, 6]
  return %y, %mean)")),
            "mul mean rms_norm");
}

TEST(CanonicalNorms, AddNormFires) {
  auto graph = canonical("%x: f32[B, T, 6], %r: f32[B, T, 6]", R"(
  const @eps : f32[] = 1e-06
  const @o : f32[6, 6]
  const @w : f32[6]
  %o = linear(%x, @o) : f32[B, T, 6]
  %h = add(%r, %o) : f32[B, T, 6]
  %square = mul(%h, %h) : f32[B, T, 6]
  %mean = mean(%square) {axes=[-1], keep=true} : f32[B, T, 1]
  %sum = add(%mean, @eps) : f32[B, T, 1]
  %root = rsqrt(%sum) : f32[B, T, 1]
  %n = mul(%h, %root) : f32[B, T, 6]
  %y = mul(@w, %n) : f32[B, T, 6]
  return %y, %h)");
  test::apply(*graph, "AddNorm");
  EXPECT_EQ(test::ops(*graph), "linear fused_add_norm");
}

}  // namespace
}  // namespace atb
