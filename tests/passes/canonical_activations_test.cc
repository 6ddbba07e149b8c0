// SPDX-License-Identifier: Apache-2.0
// Activations written by hand become operators, each its own; what only looks like one stays.
#include "canonical_testing.h"

namespace atb {
namespace {

using test::canonical;
using test::canonical_ops;
using test::find;

const char* const kX = "%x: f32[B, T, 6]";

const char* const kConstants = R"(
  const @half : f32[] = 0.5
  const @one : f32[] = 1.0
  const @three : f32[] = 3.0
  const @root_half : f32[] = 0.7071067811865476
  const @root_two : f32[] = 1.4142135623730951
  const @root_two_over_pi : f32[] = 0.7978845608028654
  const @cubic : f32[] = 0.044715
)";

std::string chain(const std::string& body) {
  std::string text = kConstants;
  size_t begin = 0;
  // Every value of these chains has the type of x.
  while (begin < body.size()) {
    const size_t end = std::min(body.find(';', begin), body.size());
    const std::string line = body.substr(begin, end - begin);
    text += "  " + line + (line.starts_with("return") ? "" : " : f32[B, T, 6]") + "\n";
    begin = end + 1;
  }
  return text;
}

std::string approximation(const std::string& body) {
  const auto graph = canonical(kX, chain(body));
  if (test::ops(*graph) != "gelu") return test::ops(*graph);
  return "gelu " + graph->nodes()[0]->attrs().text("approximate");
}

const char* const kErf = "%a = mul(%x, @root_half);%e = erf(%a);%s = add(%e, @one);";

TEST(CanonicalActivations, GeluByErfInAnyOrder) {
  for (const char* rest : {
           "%h = mul(%x, @half);%y = mul(%h, %s);return %y",
           "%h = mul(@half, %x);%y = mul(%s, %h);return %y",
           "%h = mul(%x, %s);%y = mul(%h, @half);return %y",
           "%h = mul(%s, @half);%y = mul(%x, %h);return %y",
       }) {
    EXPECT_EQ(approximation(kErf + std::string(rest)), "gelu none") << rest;
  }
  EXPECT_EQ(approximation("%a = div(%x, @root_two);%e = erf(%a);%s = add(@one, %e);%h = mul(%x, @half);"
                          "%y = mul(%h, %s);return %y"),
            "gelu none");
  EXPECT_EQ(approximation("%a = mul(%x, @root_half);%e = erf(%a);%f = mul(%e, @half);%s = add(%f, @half);"
                          "%y = mul(%x, %s);return %y"),
            "gelu none");
}

const char* const kTanh =
    "%i = mul(%n, @root_two_over_pi);%t = tanh(%i);%s = add(%t, @one);%h = mul(%x, @half);"
    "%y = mul(%h, %s);return %y";

TEST(CanonicalActivations, GeluByTanhInBothSpellings) {
  EXPECT_EQ(approximation("%p = pow(%x, @three);%c = mul(%p, @cubic);%n = add(%x, %c);" + std::string(kTanh)),
            "gelu tanh");
  EXPECT_EQ(
      approximation("%p = mul(%x, %x);%q = mul(%p, %x);%c = mul(@cubic, %q);%n = add(%c, %x);" + std::string(kTanh)),
      "gelu tanh");
  EXPECT_EQ(approximation("%k = mul(%x, @root_two_over_pi);%p = mul(%x, %x);%c = mul(%p, @cubic);%d = add(%c, @one);"
                          "%i = mul(%k, %d);%t = tanh(%i);%s = add(%t, @one);%h = mul(%x, @half);%y = mul(%h, %s);"
                          "return %y"),
            "gelu tanh");
}

TEST(CanonicalActivations, GeluOfAProduct) {
  const auto graph = canonical("%l: f32[B, T, 6], %r: f32[B, T, 6]", chain("%x = mul(%l, %r);" + std::string(kErf) +
                                                                           "%h = mul(%x, @half);%y = mul(%h, %s);"
                                                                           "%z = mul(%y, %r);return %z"));
  EXPECT_EQ(test::ops(*graph), "mul gelu mul");
}

TEST(CanonicalActivations, GateUpFiresOnChains) {
  auto graph = canonical("%v: f32[B, T, 4]", R"(
  const @gate : f32[6, 4]
  const @up : f32[6, 4]
  %x = linear(%v, @gate) : f32[B, T, 6]
  %u = linear(%v, @up) : f32[B, T, 6]
)" + chain("%p = pow(%x, @three);%c = mul(%p, @cubic);%n = add(%x, %c);%i = mul(%n, @root_two_over_pi);%t = tanh(%i);"
           "%s = add(%t, @one);%h = mul(%x, @half);%y = mul(%h, %s);%z = mul(%y, %u);return %z"));
  test::apply(*graph, "GateUp");
  ASSERT_EQ(test::ops(*graph), "fused_gate_up");
  EXPECT_EQ(find(*graph, "z")->attrs().text("activation"), "gelu_tanh");
}

TEST(CanonicalActivations, SiluSigmoidAndRelu) {
  EXPECT_EQ(canonical_ops(kX, chain("%s = sigmoid(%x);%y = mul(%x, %s);return %y")), "silu");
  EXPECT_EQ(canonical_ops(kX, chain("%s = sigmoid(%x);%y = mul(%s, %x);return %y")), "silu");
  EXPECT_EQ(canonical_ops(kX, chain("%n = neg(%x);%e = exp(%n);%d = add(%e, @one);%y = div(%x, %d);return %y")),
            "silu");
  EXPECT_EQ(canonical_ops(kX, chain("%n = neg(%x);%e = exp(%n);%d = add(@one, %e);%s = div(@one, %d);"
                                    "%y = mul(%x, %s);return %y")),
            "silu");
  EXPECT_EQ(canonical_ops(kX, chain("%n = neg(%x);%e = exp(%n);%d = add(@one, %e);%s = reciprocal(%d);return %s")),
            "sigmoid");
  EXPECT_EQ(canonical_ops(kX, "  const @zero : f32[] = 0.0\n" + chain("%y = maximum(%x, @zero);return %y")), "relu");
}

// --- Near misses

TEST(CanonicalActivations, OtherCoefficientsAreOtherFunctions) {
  for (const char* constant : {"0.7", "0.7072", "0.70711"}) {
    EXPECT_EQ(canonical_ops(kX, "  const @k : f32[] = " + std::string(constant) + "\n" +
                                    chain("%a = mul(%x, @k);%e = erf(%a);%s = add(%e, @one);%h = mul(%x, @half);"
                                          "%y = mul(%h, %s);return %y")),
              "mul erf add mul mul")
        << constant;
  }
  EXPECT_EQ(
      canonical_ops(kX, "  const @k : f32[] = 0.04472\n" +
                            chain("%p = pow(%x, @three);%c = mul(%p, @k);%n = add(%x, %c);" + std::string(kTanh))),
      "mul mul mul add mul tanh add mul mul");
  EXPECT_EQ(canonical_ops(kX, chain(kErf + std::string("%h = mul(%x, @three);%y = mul(%h, %s);return %y"))),
            "mul erf add mul mul");
  EXPECT_EQ(canonical_ops(kX, chain("%a = mul(%x, @root_half);%e = tanh(%a);%s = add(%e, @one);%h = mul(%x, @half);"
                                    "%y = mul(%h, %s);return %y")),
            "mul tanh add mul mul")
      << "tanh where erf belongs";
}

TEST(CanonicalActivations, FactorsOfAnotherValueAreNoActivation) {
  const std::string inputs = "%x: f32[B, T, 6], %z: f32[B, T, 6]";
  EXPECT_EQ(canonical_ops(inputs, chain(kErf + std::string("%h = mul(%z, @half);%y = mul(%h, %s);return %y"))),
            "mul erf add mul mul");
  EXPECT_EQ(canonical_ops(inputs, chain("%s = sigmoid(%z);%y = mul(%x, %s);return %y")), "sigmoid mul");
}

TEST(CanonicalActivations, QuickGeluIsNoSilu) {
  EXPECT_EQ(canonical_ops(kX, "  const @k : f32[] = 1.702\n" +
                                  chain("%a = mul(%x, @k);%s = sigmoid(%a);%y = mul(%x, %s);return %y")),
            "mul sigmoid mul");
}

TEST(CanonicalActivations, ChainsReadElsewhereKeepWhatIsRead) {
  const auto graph = canonical(kX, chain(kErf + std::string("%h = mul(%x, @half);%y = mul(%h, %s);return %y, %e")));
  EXPECT_EQ(test::ops(*graph), "mul erf gelu");
}

}  // namespace
}  // namespace atb
