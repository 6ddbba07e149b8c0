// SPDX-License-Identifier: Apache-2.0
// B14: gelu by erf, gelu by tanh and quick gelu are three functions, written as operators or as chains.
#include <cmath>

#include "graph_rig.h"

namespace atb::testing {
namespace {

const char* const kErf = R"(
  const @half : f32[] = 0.5
  const @one : f32[] = 1.0
  const @k : f32[] = 0.7071067811865476
  %a = mul(%x, @k) : f32[N]
  %f = erf(%a) : f32[N]
  %s = add(%f, @one) : f32[N]
  %h = mul(%x, @half) : f32[N]
  %y = mul(%h, %s) : f32[N]
  return %y)";

const char* const kTanh = R"(
  const @half : f32[] = 0.5
  const @one : f32[] = 1.0
  const @three : f32[] = 3.0
  const @c : f32[] = 0.044715
  const @k : f32[] = 0.7978845608028654
  %h = mul(%x, @half) : f32[N]
  %p = pow(%x, @three) : f32[N]
  %q = mul(%p, @c) : f32[N]
  %n = add(%x, %q) : f32[N]
  %a = mul(%n, @k) : f32[N]
  %f = tanh(%a) : f32[N]
  %s = add(%f, @one) : f32[N]
  %y = mul(%h, %s) : f32[N]
  return %y)";

const char* const kQuick = R"(
  const @k : f32[] = 1.702
  %a = mul(%x, @k) : f32[N]
  %s = sigmoid(%a) : f32[N]
  %y = mul(%x, %s) : f32[N]
  return %y)";

double at(const char* body, float x) {
  const auto graph = compiled("%x: f32[N]", body);
  return values(run(*graph, {floats({1}, {x})})[0])[0];
}

double exact_erf(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double exact_tanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

TEST(B14GeluChains, EachChainKeepsItsFunction) {
  EXPECT_NEAR(at(kErf, 2.0F), 1.9544997, 1e-6);
  EXPECT_NEAR(at(kTanh, 2.0F), 1.9545977, 1e-6);
  EXPECT_NEAR(at(kQuick, 2.0F), 1.9356586, 1e-6);
  // Where the two differ most.
  EXPECT_NEAR(at(kErf, -2.7F), exact_erf(-2.7), 1e-6);
  EXPECT_NEAR(at(kTanh, -2.7F), exact_tanh(-2.7), 1e-6);
  EXPECT_GT(std::abs(exact_erf(-2.7) - exact_tanh(-2.7)), 1e-5);
}

TEST(B14GeluChains, ChainsAreTheOperatorsOfTheirOwnKind) {
  for (const auto& [body, kind] : {std::pair(kErf, "none"), std::pair(kTanh, "tanh")}) {
    const auto graph = compiled("%x: f32[N]", body);
    ASSERT_EQ(graph->graph().nodes().size(), 1u);
    EXPECT_EQ(graph->graph().nodes()[0]->attrs().text("approximate"), kind);
    const auto op =
        compiled("%x: f32[N]", "  %y = gelu(%x) {approximate=\"" + std::string(kind) + "\"} : f32[N]\n  return %y");
    const std::vector<Tensor> x = {floats({5}, {-2.7F, -0.3F, 0.0F, 2.0F, 6.0F})};
    EXPECT_EQ(values(run(*graph, x)[0]), values(run(*op, x)[0]));
  }
  EXPECT_FALSE(has(*compiled("%x: f32[N]", kQuick), "silu"));
}

}  // namespace
}  // namespace atb::testing
