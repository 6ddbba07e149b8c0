// SPDX-License-Identifier: Apache-2.0
// What changes nothing goes; what changes a type, a shape or a number stays.
#include "canonical_testing.h"

namespace atb {
namespace {

using test::canonical;
using test::canonical_ops;
using test::ops;

const char* const kX = "%x: f32[B, T, 6]";

// One node between two that stay.
std::string between(const std::string& declared, const std::string& node, const std::string& type = "f32[B, T, 6]") {
  return declared + "  %a = exp(%x) : f32[B, T, 6]\n  %b = " + node + " : " + type + "\n  %y = tanh(%b) : " + type +
         "\n  return %y";
}

TEST(CanonicalIdentities, NeutralNumbersGo) {
  const char* const one = "  const @one : f32[] = 1.0\n";
  const char* const zero = "  const @zero : f32[1] = [0.0]\n";
  EXPECT_EQ(canonical_ops(kX, between(one, "mul(@one, %a)")), "exp tanh");
  EXPECT_EQ(canonical_ops(kX, between(one, "div(%a, @one)")), "exp tanh");
  EXPECT_EQ(canonical_ops(kX, between(one, "pow(%a, @one)")), "exp tanh");
  EXPECT_EQ(canonical_ops(kX, between(zero, "add(%a, @zero)")), "exp tanh");
  EXPECT_EQ(canonical_ops(kX, between(zero, "sub(%a, @zero)")), "exp tanh");
}

TEST(CanonicalIdentities, NumbersThatOnlyLookNeutralStay) {
  EXPECT_EQ(canonical_ops(kX, between("  const @zero : f32[] = 0.0\n", "sub(@zero, %a)")), "exp neg tanh");
  EXPECT_EQ(canonical_ops(kX, between("  const @one : f32[] = 1.0\n", "div(@one, %a)")), "exp reciprocal tanh")
      << "nothing but its name changes";
  EXPECT_EQ(canonical_ops(kX, between("  const @one : f32[1, 1, 1, 1] = [1.0]\n", "mul(%a, @one)", "f32[1, B, T, 6]")),
            "exp mul tanh")
      << "it gives an axis";
  EXPECT_EQ(canonical_ops(kX, between("  const @near : f32[] = 1.00000012\n", "mul(%a, @near)")), "exp mul tanh");
  EXPECT_EQ(canonical_ops(kX, between("  const @ones : f32[6] = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]\n", "mul(%a, @ones)")),
            "exp mul tanh");
}

TEST(CanonicalIdentities, BoolsThatDecideNothingGo) {
  const std::string inputs = "%p: bool[B, T], %x: f32[B, T]";
  const std::string tail = "  %y = where(%c, %x, %n) : f32[B, T]\n  return %y";
  const std::string head = "  const @true : bool[] = 1\n  const @false : bool[] = 0\n  %n = neg(%x) : f32[B, T]\n";
  EXPECT_EQ(canonical_ops(inputs, head + "  %c = logical_and(@true, %p) : bool[B, T]\n" + tail), "neg where");
  EXPECT_EQ(canonical_ops(inputs, head + "  %c = logical_or(%p, @false) : bool[B, T]\n" + tail), "neg where");
  EXPECT_EQ(canonical_ops(inputs, head + "  %c = logical_and(%p, %p) : bool[B, T]\n" + tail), "neg where");
  EXPECT_EQ(
      canonical_ops(inputs, head + "  %d = logical_not(%p) : bool[B, T]\n  %c = logical_not(%d) : bool[B, T]\n" + tail),
      "neg where");
  EXPECT_EQ(canonical_ops(inputs, head + "  %c = logical_or(%p, @true) : bool[B, T]\n" + tail), "neg logical_or where");
}

TEST(CanonicalIdentities, CastsThatLoseNothingMeet) {
  EXPECT_EQ(canonical_ops(kX, between("", "cast(%a) {dtype=\"f32\"}")), "exp tanh");
  EXPECT_EQ(canonical_ops("%i: i32[T]", R"(
  %a = cast(%i) {dtype="i64"} : i64[T]
  %b = cast(%a) {dtype="f32"} : f32[T]
  %y = exp(%b) : f32[T]
  return %y)"),
            "cast exp");
  EXPECT_EQ(canonical_ops("%x: bf16[T]", R"(
  %a = cast(%x) {dtype="f32"} : f32[T]
  %b = cast(%a) {dtype="bf16"} : bf16[T]
  %y = neg(%b) : bf16[T]
  return %y)"),
            "neg");
}

TEST(CanonicalIdentities, CastsThatRoundStay) {
  EXPECT_EQ(canonical_ops(kX, between("", "cast(%a) {dtype=\"bf16\"}", "bf16[B, T, 6]")), "exp cast tanh");
  EXPECT_EQ(canonical_ops("%x: f32[T]", R"(
  %a = cast(%x) {dtype="bf16"} : bf16[T]
  %b = cast(%a) {dtype="f32"} : f32[T]
  %y = neg(%b) : f32[T]
  return %y)"),
            "cast cast neg");
  EXPECT_EQ(canonical_ops("%x: f32[T]", R"(
  %a = cast(%x) {dtype="i32"} : i32[T]
  %b = cast(%a) {dtype="f32"} : f32[T]
  return %b)"),
            "cast cast");
}

TEST(CanonicalIdentities, PiecesThatMakeTheWholeGo) {
  EXPECT_EQ(canonical_ops(kX, between("", "slice(%a) {axis=1, bounds=[0, T]}")), "exp tanh");
  EXPECT_EQ(canonical_ops(kX, between("", "broadcast(%a) {shape=[B, T, 6]}")), "exp tanh");
  EXPECT_EQ(canonical_ops(kX, R"(
  %a = relu(%x) : f32[B, T, 6]
  %l = slice(%a) {axis=2, bounds=[0, 2]} : f32[B, T, 2]
  %r = slice(%a) {axis=2, bounds=[2, 6]} : f32[B, T, 4]
  %none = slice(%a) {axis=2, bounds=[6, 6]} : f32[B, T, 0]
  %b = concat(%l, %r, %none) {axis=2} : f32[B, T, 6]
  %y = exp(%b) : f32[B, T, 6]
  return %y)"),
            "relu exp");
  EXPECT_EQ(canonical_ops("%x: f32[B, T, 6], %z: f32[B, T, 2]", R"(
  %c = concat(%x, %z) {axis=-1} : f32[B, T, 8]
  %l = slice(%c) {axis=2, bounds=[0, 6]} : f32[B, T, 6]
  %r = slice(%c) {axis=2, bounds=[6, 7]} : f32[B, T, 1]
  %a = exp(%l) : f32[B, T, 6]
  %b = exp(%r) : f32[B, T, 1]
  return %a, %b)"),
            "slice exp exp");
}

TEST(CanonicalIdentities, PiecesInAnotherOrderStay) {
  EXPECT_EQ(canonical_ops(kX, R"(
  %l = slice(%x) {axis=2, bounds=[0, 2]} : f32[B, T, 2]
  %r = slice(%x) {axis=2, bounds=[2, 6]} : f32[B, T, 4]
  %y = concat(%r, %l) {axis=2} : f32[B, T, 6]
  return %y)"),
            "slice slice concat");
  EXPECT_EQ(canonical_ops("%x: f32[B, T, 6], %z: f32[B, T, 2]", R"(
  %c = concat(%x, %z) {axis=-1} : f32[B, T, 8]
  %y = slice(%c) {axis=2, bounds=[5, 7]} : f32[B, T, 2]
  return %y)"),
            "concat slice");
  EXPECT_EQ(canonical_ops(kX, "  %y = slice(%x) {axis=2, bounds=[0, 6], step=2} : f32[B, T, 3]\n  return %y"), "slice");
}

TEST(CanonicalIdentities, OperatorsBroadcastThemselves) {
  EXPECT_EQ(canonical_ops("%x: f32[B, T, 6], %v: f32[T, 1]", R"(
  %w = broadcast(%v) {shape=[T, 6]} : f32[T, 6]
  %b = broadcast(%w) {shape=[B, T, 6]} : f32[B, T, 6]
  %y = add(%x, %b) : f32[B, T, 6]
  return %y)"),
            "add");
  EXPECT_EQ(canonical_ops("%v: f32[T, 1], %w: f32[6]", R"(
  %a = broadcast(%v) {shape=[4, T, 6]} : f32[4, T, 6]
  %y = add(%a, %w) : f32[4, T, 6]
  return %y)"),
            "broadcast add")
      << "the only operand with that axis";
}

TEST(CanonicalIdentities, AnOutputKeepsItsName) {
  const auto graph = canonical(kX, "  %y = reshape(%x) {shape=[B, T, 6]} : f32[B, T, 6]\n  return %y");
  EXPECT_EQ(graph->outputs()[0]->name(), "y");
}

// --- Scales

TEST(CanonicalScales, AScaledQueryScalesItsScores) {
  const std::string inputs = "%x: f32[B, T, 8], %k: f32[B, 2, T, 4]";
  const auto graph = canonical(inputs, R"(
  const @quarter : f32[] = 0.25
  const @half : f32[] = 0.5
  const @w : f32[8, 8]
  %l = linear(%x, @w) : f32[B, T, 8]
  %q = mul(%l, @quarter) : f32[B, T, 8]
  %h = reshape(%q) {shape=[B, T, 2, 4]} : f32[B, T, 2, 4]
  %t = transpose(%h) {perm=[0, 2, 1, 3]} : f32[B, 2, T, 4]
  %s = matmul(%t, %k) {transpose_b=true} : f32[B, 2, T, T]
  %y = mul(%s, @half) : f32[B, 2, T, T]
  return %y)");
  EXPECT_EQ(ops(*graph), "linear reshape transpose matmul mul");
  EXPECT_EQ(graph->nodes().back()->input(1)->constant()->to_f32()[0], 0.125F);
}

TEST(CanonicalScales, AScaledQueryThatIsReadKeepsItsScale) {
  EXPECT_EQ(canonical_ops("%x: f32[B, T, 8], %k: f32[B, T, 8]", R"(
  const @quarter : f32[] = 0.25
  %r = relu(%x) : f32[B, T, 8]
  %q = mul(%r, @quarter) : f32[B, T, 8]
  %s = matmul(%q, %k) {transpose_b=true} : f32[B, T, T]
  return %s, %q)"),
            "relu mul matmul");
  EXPECT_EQ(canonical_ops("%x: f32[B, T, 8], %k: f32[B, T, 8], %c: f32[]", R"(
  %q = mul(%x, %c) : f32[B, T, 8]
  %s = matmul(%q, %k) {transpose_b=true} : f32[B, T, T]
  return %s)"),
            "mul matmul")
      << "a number of the step";
}

}  // namespace
}  // namespace atb
