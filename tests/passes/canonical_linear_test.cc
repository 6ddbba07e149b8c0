// SPDX-License-Identifier: Apache-2.0
// Products with constants become linears with biases; merged projections come apart and meet again in the fusions.
#include "canonical_testing.h"

namespace atb {
namespace {

using test::canonical;
using test::canonical_ops;
using test::count;
using test::find;
using test::ops;

const char* const kX = "%x: f32[B, T, 4]";

TEST(CanonicalLinear, ProductsWithConstantsAreLinears) {
  const auto turned = canonical(kX, R"(
  const @w : f32[6, 4]
  %t = transpose(@w) {perm=[1, 0]} : f32[4, 6]
  %y = matmul(%x, %t) : f32[B, T, 6]
  return %y)");
  ASSERT_EQ(ops(*turned), "linear");
  EXPECT_EQ(find(*turned, "y")->input(1)->name(), "w") << "the weight itself, whoever else it is tied to";
  EXPECT_EQ(canonical_ops(kX, R"(
  const @w : f32[6, 4]
  %y = matmul(%x, @w) {transpose_b=true} : f32[B, T, 6]
  return %y)"),
            "linear");
  const auto columns = canonical(kX, R"(
  const @w : f32[4, 6]
  %y = matmul(%x, @w) : f32[B, T, 6]
  return %y)");
  ASSERT_EQ(ops(*columns), "linear");
  EXPECT_EQ(to_string(find(*columns, "y")->input(1)->shape()), "[6, 4]");
  EXPECT_EQ(canonical_ops(kX, R"(
  const @w : f32[4, 6]
  %t = transpose(@w) {perm=[1, 0]} : f32[6, 4]
  %y = linear(%x, %t) : f32[B, T, 6]
  return %y)"),
            "linear");
}

TEST(CanonicalLinear, OneTransposedCopyServesAllReaders) {
  const auto graph = canonical(kX, R"(
  const @w : f32[4, 6]
  %r = relu(%x) : f32[B, T, 4]
  %y = matmul(%x, @w) : f32[B, T, 6]
  %z = matmul(%r, @w) : f32[B, T, 6]
  return %y, %z)");
  EXPECT_EQ(ops(*graph), "relu linear linear");
  EXPECT_EQ(find(*graph, "y")->input(1), find(*graph, "z")->input(1));
}

TEST(CanonicalLinear, ATiedEmbeddingStaysTied) {
  const auto graph = canonical("%ids: i32[B, T]", R"(
  const @embed : f32[20, 4]
  %x = embedding(%ids, @embed) : f32[B, T, 4]
  %t = transpose(@embed) {perm=[1, 0]} : f32[4, 20]
  %y = matmul(%x, %t) : f32[B, T, 20]
  return %y)");
  EXPECT_EQ(ops(*graph), "embedding linear");
  EXPECT_EQ(find(*graph, "x")->input(1), find(*graph, "y")->input(1));
}

TEST(CanonicalLinear, AddedVectorsAreBiases) {
  EXPECT_EQ(canonical_ops(kX, R"(
  const @w : f32[6, 4]
  const @b : f32[6]
  %l = linear(%x, @w) : f32[B, T, 6]
  %y = add(@b, %l) : f32[B, T, 6]
  return %y)"),
            "linear");
  EXPECT_EQ(canonical_ops(kX, R"(
  const @w : f32[6, 4]
  const @b : f32[1, 1, 6]
  %l = linear(%x, @w) : f32[B, T, 6]
  %y = add(%l, @b) : f32[B, T, 6]
  return %y)"),
            "linear");
}

TEST(CanonicalLinear, Conv1DOfFlattenedTokens) {
  const auto graph = canonical(kX, R"(
  const @w1 : f32[4, 6]
  const @b1 : f32[6]
  const @w2 : f32[6, 4]
  const @b2 : f32[4]
  %f = reshape(%x) {shape=[B*T, 4]} : f32[B*T, 4]
  %m = matmul(%f, @w1) : f32[B*T, 6]
  %a = add(@b1, %m) : f32[B*T, 6]
  %v = reshape(%a) {shape=[B, T, 6]} : f32[B, T, 6]
  %r = relu(%v) : f32[B, T, 6]
  %g = reshape(%r) {shape=[B*T, 6]} : f32[B*T, 6]
  %n = matmul(%g, @w2) : f32[B*T, 4]
  %c = add(%n, @b2) : f32[B*T, 4]
  %y = reshape(%c) {shape=[B, T, 4]} : f32[B, T, 4]
  return %y)");
  EXPECT_EQ(ops(*graph), "linear relu linear");
}

TEST(CanonicalLinear, ALayerOfFlattenedTokensLosesItsReshapes) {
  const auto graph = canonical(kX, R"(
  const @w : f32[4]
  const @b : f32[4]
  const @fc1 : f32[6, 4]
  const @fc2 : f32[4, 6]
  %h = reshape(%x) {shape=[B*T, 4]} : f32[B*T, 4]
  %n = layer_norm(%h, @w, @b) {eps=1e-05} : f32[B*T, 4]
  %up = linear(%n, @fc1) : f32[B*T, 6]
  %r = relu(%up) : f32[B*T, 6]
  %down = linear(%r, @fc2) : f32[B*T, 4]
  %s = add(%h, %down) : f32[B*T, 4]
  %y = reshape(%s) {shape=[B, T, 4]} : f32[B, T, 4]
  return %y)");
  EXPECT_EQ(ops(*graph), "layer_norm linear relu linear add");
}

// --- Near misses

TEST(CanonicalLinear, OtherProductsAndSumsStay) {
  EXPECT_EQ(canonical_ops("%x: f32[B, T, 4], %w: f32[4, 6]", R"(
  %y = matmul(%x, %w) : f32[B, T, 6]
  return %y)"),
            "matmul")
      << "no constant";
  EXPECT_EQ(canonical_ops(kX, R"(
  const @w : f32[1, 4, 6]
  %y = matmul(%x, @w) : f32[B, T, 6]
  return %y)"),
            "matmul")
      << "no matrix";
  EXPECT_EQ(canonical_ops("%x: f32[B, 5, 4]", R"(
  const @w : f32[6, 4]
  const @b : f32[5, 1]
  %l = linear(%x, @w) : f32[B, 5, 6]
  %y = add(%l, @b) : f32[B, 5, 6]
  return %y)"),
            "linear add")
      << "a bias of the tokens";
  EXPECT_EQ(canonical_ops(kX, R"(
  const @w : f32[6, 4]
  const @b : f32[1]
  %l = linear(%x, @w) : f32[B, T, 6]
  %y = add(%l, @b) : f32[B, T, 6]
  return %y)"),
            "linear add")
      << "one number for all";
  EXPECT_EQ(canonical_ops(kX, R"(
  const @w : f32[6, 4]
  const @a : f32[6]
  const @b : f32[6]
  %l = linear(%x, @w, @a) : f32[B, T, 6]
  %y = add(%l, @b) : f32[B, T, 6]
  return %y)"),
            "linear add")
      << "it has a bias";
  EXPECT_EQ(canonical_ops(kX, R"(
  const @w : f32[6, 4]
  const @b : f32[6]
  %l = linear(%x, @w) : f32[B, T, 6]
  %y = add(%l, @b) : f32[B, T, 6]
  return %y, %l)"),
            "linear add")
      << "read elsewhere";
}

TEST(CanonicalLinear, AReshapeThatCutsRowsStays) {
  EXPECT_EQ(canonical_ops(kX, R"(
  const @w : f32[6, 2]
  %h = reshape(%x) {shape=[B, T, 2, 2]} : f32[B, T, 2, 2]
  %l = linear(%h, @w) : f32[B, T, 2, 6]
  %y = relu(%l) : f32[B, T, 2, 6]
  return %y)"),
            "reshape linear relu");
}

}  // namespace
}  // namespace atb
