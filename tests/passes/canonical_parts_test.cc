// SPDX-License-Identifier: Apache-2.0
// Merged projections: one linear of which parts are read comes apart, without a copied byte, and the fusions merge it.
#include "canonical_testing.h"

namespace atb {
namespace {

using test::canonical;
using test::canonical_ops;
using test::count;
using test::find;
using test::ops;

const std::string kInputs = "%x: f32[B, T, 4], %cos: f32[T, 2], %sin: f32[T, 2]";

// Rotates %q and %k [B, T, heads, 4] and returns them with %v.
const std::string kRotated = R"(
  %qr = rotary(%q, %cos, %sin) : f32[B, T, 2, 4]
  %kr = rotary(%k, %cos, %sin) : f32[B, T, 2, 4]
  return %qr, %kr, %v)";

void expect_merged(const Graph& canonical_graph) {
  const auto graph = canonical_graph.clone();
  const MatchReport report = test::apply(*graph, "QKV+RoPE");
  ASSERT_EQ(report.patterns[0].matches, 1) << (report.misses.empty() ? "" : report.misses[0].str());
  test::expect_same_numbers(canonical_graph, *graph);
  // Not copied: the rows of the merged weight lie in the bytes of the exported one.
  for (const Node* node : graph->nodes()) {
    if (!node->is("merged_matmul")) continue;
    const auto& segments = node->input(1)->constant()->segments();
    for (const Segment& segment : segments) EXPECT_EQ(segment.storage, segments[0].storage);
  }
}

TEST(CanonicalParts, SlicesOfTheLastAxis) {
  const auto graph = canonical(kInputs, R"(
  const @qkv : f32[24, 4]
  const @b : f32[24]
  %m = linear(%x, @qkv, @b) : f32[B, T, 24]
  %qs = slice(%m) {axis=2, bounds=[0, 8]} : f32[B, T, 8]
  %ks = slice(%m) {axis=-1, bounds=[8, 16]} : f32[B, T, 8]
  %vs = slice(%m) {axis=2, bounds=[16, 24]} : f32[B, T, 8]
  %q = reshape(%qs) {shape=[B, T, 2, 4]} : f32[B, T, 2, 4]
  %k = reshape(%ks) {shape=[B, T, 2, 4]} : f32[B, T, 2, 4]
  %v = reshape(%vs) {shape=[B, T, 2, 4]} : f32[B, T, 2, 4]
)" + kRotated);
  EXPECT_EQ(count(*graph, "linear"), 3);
  EXPECT_EQ(count(*graph, "slice"), 0);
  expect_merged(*graph);
}

TEST(CanonicalParts, RowsListedInOrderAreASlice) {
  const auto with = [](const std::string& list, const std::string& shape) {
    return canonical_ops("%x: f32[T, 4]", "  const @rows : i64[2] = [" + list + R"(]
  %y = take(%x, @rows) : f32[)" + shape + R"(, 4]
  return %y
)");
  };
  EXPECT_EQ(with("1, 2", "2"), "slice");
  EXPECT_EQ(with("-2, -1", "2"), "slice");
  EXPECT_EQ(with("2, 1", "2"), "take");
  EXPECT_EQ(with("0, 2", "2"), "take");
  EXPECT_EQ(with("-1, 0", "2"), "take");  // the last, then the first
}

// GPT-NeoX: q, k and v of each head side by side.
TEST(CanonicalParts, SlicesOfEachHead) {
  const auto graph = canonical(kInputs, R"(
  const @qkv : f32[24, 4]
  const @b : f32[24]
  %m = linear(%x, @qkv, @b) : f32[B, T, 24]
  %h = reshape(%m) {shape=[B, T, 2, 12]} : f32[B, T, 2, 12]
  %t = transpose(%h) {perm=[0, 2, 1, 3]} : f32[B, 2, T, 12]
  %qs = slice(%t) {axis=3, bounds=[0, 4]} : f32[B, 2, T, 4]
  %ks = slice(%t) {axis=3, bounds=[4, 8]} : f32[B, 2, T, 4]
  %vs = slice(%t) {axis=3, bounds=[8, 12]} : f32[B, 2, T, 4]
  %q = transpose(%qs) {perm=[0, 2, 1, 3]} : f32[B, T, 2, 4]
  %k = transpose(%ks) {perm=[0, 2, 1, 3]} : f32[B, T, 2, 4]
  %v = transpose(%vs) {perm=[0, 2, 1, 3]} : f32[B, T, 2, 4]
)" + kRotated);
  EXPECT_EQ(count(*graph, "linear"), 3);
  EXPECT_EQ(count(*graph, "slice") + count(*graph, "transpose"), 0);
  expect_merged(*graph);
}

// Falcon: heads of q, then one of k and one of v. v must be as wide as k for the fusion.
TEST(CanonicalParts, SlicesOfHeads) {
  const auto graph = canonical(kInputs, R"(
  const @qkv : f32[16, 4]
  %w = transpose(@qkv) {perm=[1, 0]} : f32[4, 16]
  %m = matmul(%x, %w) : f32[B, T, 16]
  %h = reshape(%m) {shape=[B, T, 4, 4]} : f32[B, T, 4, 4]
  %q = slice(%h) {axis=2, bounds=[0, 2]} : f32[B, T, 2, 4]
  %k = slice(%h) {axis=2, bounds=[2, 3]} : f32[B, T, 1, 4]
  %v = slice(%h) {axis=2, bounds=[3, 4]} : f32[B, T, 1, 4]
  %qr = rotary(%q, %cos, %sin) : f32[B, T, 2, 4]
  %kr = rotary(%k, %cos, %sin) : f32[B, T, 1, 4]
  return %qr, %kr, %v)");
  EXPECT_EQ(count(*graph, "linear"), 3);
  expect_merged(*graph);
}

// Each group of query heads with its key and value head, and strided selections.
TEST(CanonicalParts, SlicesOfGroupsAndSteps) {
  const auto graph = canonical("%x: f32[B, T, 4]", R"(
  const @w : f32[24, 4]
  %m = linear(%x, @w) : f32[B, T, 24]
  %h = reshape(%m) {shape=[B, T, 2, 4, 3]} : f32[B, T, 2, 4, 3]
  %q = slice(%h) {axis=3, bounds=[0, 2]} : f32[B, T, 2, 2, 3]
  %k = slice(%h) {axis=3, bounds=[2, 4], step=2} : f32[B, T, 2, 1, 3]
  %v = slice(%h) {axis=-2, bounds=[3, 4]} : f32[B, T, 2, 1, 3]
  return %q, %k, %v)");
  EXPECT_EQ(count(*graph, "linear"), 3);
  EXPECT_EQ(count(*graph, "slice"), 0);
}

TEST(CanonicalParts, GateAndUpInOne) {
  auto graph = canonical("%x: f32[B, T, 4]", R"(
  const @gate_up : f32[12, 4]
  %m = linear(%x, @gate_up) : f32[B, T, 12]
  %g = slice(%m) {axis=2, bounds=[0, 6]} : f32[B, T, 6]
  %u = slice(%m) {axis=2, bounds=[6, 12]} : f32[B, T, 6]
  %a = silu(%g) : f32[B, T, 6]
  %y = mul(%u, %a) : f32[B, T, 6]
  return %y)");
  test::apply(*graph, "GateUp");
  EXPECT_EQ(ops(*graph), "fused_gate_up");
}

TEST(CanonicalParts, AbsentWeightsComeApartToo) {
  auto graph = parse_graph(R"(graph @g(%x: f32[B, T, 4]) {
  const @w : bf16[12, 4]
  %m = linear(%x, @w) : f32[B, T, 12]
  %g = slice(%m) {axis=2, bounds=[0, 6]} : f32[B, T, 6]
  %u = slice(%m) {axis=2, bounds=[6, 12]} : f32[B, T, 6]
  return %g, %u
})");
  canonicalize(*graph);
  eliminate_dead_code(*graph);
  EXPECT_EQ(ops(*graph), "linear linear");
}

// --- Near misses

TEST(CanonicalParts, AWholeThatIsReadStaysWhole) {
  const std::string slices = R"(
  const @w : f32[12, 4]
  %m = linear(%x, @w) : f32[B, T, 12]
  %g = slice(%m) {axis=2, bounds=[0, 6]} : f32[B, T, 6]
  %u = slice(%m) {axis=2, bounds=[6, 12]} : f32[B, T, 6]
)";
  EXPECT_EQ(canonical_ops("%x: f32[B, T, 4]", slices + "  return %g, %u, %m"), "linear slice slice");
  EXPECT_EQ(canonical_ops("%x: f32[B, T, 4]", slices + "  %r = relu(%m) : f32[B, T, 12]\n  return %g, %u, %r"),
            "linear slice slice relu");
}

TEST(CanonicalParts, RowsAreNotComputedTwice) {
  EXPECT_EQ(canonical_ops("%x: f32[B, T, 4]", R"(
  const @w : f32[12, 4]
  %m = linear(%x, @w) : f32[B, T, 12]
  %g = slice(%m) {axis=2, bounds=[0, 7]} : f32[B, T, 7]
  %u = slice(%m) {axis=2, bounds=[6, 12]} : f32[B, T, 6]
  return %g, %u)"),
            "linear slice slice");
}

TEST(CanonicalParts, SlicesOfTokensAreNoRowsOfTheWeight) {
  EXPECT_EQ(canonical_ops("%x: f32[B, T, 4]", R"(
  const @w : f32[12, 4]
  %m = linear(%x, @w) : f32[B, T, 12]
  %last = slice(%m) {axis=1, bounds=[T - 1, T]} : f32[B, 1, 12]
  return %last)"),
            "linear slice");
}

TEST(CanonicalParts, WeightsOfTheStepStay) {
  EXPECT_EQ(canonical_ops("%x: f32[B, T, 4], %w: f32[12, 4]", R"(
  %m = linear(%x, %w) : f32[B, T, 12]
  %g = slice(%m) {axis=2, bounds=[0, 6]} : f32[B, T, 6]
  return %g)"),
            "linear slice");
}

}  // namespace
}  // namespace atb
