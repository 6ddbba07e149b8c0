// SPDX-License-Identifier: Apache-2.0
// Masks become one sum with scaled scores, also in rows where every key is hidden; what only looks like a mask stays.
#include <limits>

#include "canonical_testing.h"

namespace atb {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Scores [B, 2, T, T], keys that are there [B, 1, 1, T], and the causal triangle [T, T].
class CanonicalMasks : public ::testing::Test {
 protected:
  CanonicalMasks() : b_(graph_) {
    const Dim batch = Dim::symbol("B"), t = Dim::symbol("T");
    Value* q = graph_.add_input("q", {DType::kF32, {batch, 2, t, 4}, nullptr});
    Value* k = graph_.add_input("k", {DType::kF32, {batch, 2, t, 4}, nullptr});
    scores_ = b_("matmul", {q, k}, {{"transpose_b", true}});
    Value* places = b_("iota", {}, {{"shape", Shape{t}}});
    Value* queries = b_.reshape(places, {t, 1});
    // The first two keys of every row are padding, so that queries 0 and 1 see nothing beside causality.
    const int32_t one = 1;
    absent_ = b_("less_equal", {places, b_.constant(Constant::from_i32("one", {}, std::span(&one, 1)))});
    future_ = b_("less", {queries, b_.reshape(places, {1, t})});
  }
  Value* fill(Value* x, Value* where, double number) { return b_("where", {where, b_.scalar(number), x}); }
  Value* mask(Value* where, double number) { return fill(b_.scalar(0), where, number); }
  Value* times(Value* x, double factor) { return b_("mul", {x, b_.scalar(factor)}); }
  Value* add(Value* x, Value* y) { return b_("add", {x, y}); }

  // The operators between matmul and softmax, canonical; numbers stay as they were.
  std::string after(Value* x) {
    graph_.set_outputs({b_("softmax", {x})});
    const auto before = graph_.clone();
    canonicalize(graph_);
    verify(graph_, "canonicalize");
    EXPECT_EQ(canonicalize(graph_), 0) << "not settled";
    test::expect_same_numbers(*before, graph_);
    std::string names;
    for (const Value* at = graph_.outputs()[0]->producer()->input(0); !at->producer()->is("matmul");) {
      const Node* node = at->producer();
      names = node->op_name() + (names.empty() ? "" : " " + names);
      const bool first = !node->input(0)->is_constant() && !(node->is("where"));
      at = node->input(first ? 0 : (node->input(1)->is_constant() ? 2 : 1));
    }
    return names;
  }
  Graph graph_;
  Builder b_;
  Value* scores_;
  Value* absent_;
  Value* future_;
};

TEST_F(CanonicalMasks, FillsAreAdded) { EXPECT_EQ(after(fill(scores_, future_, -kInf)), "add"); }
TEST_F(CanonicalMasks, SmallFillsAreAdded) { EXPECT_EQ(after(fill(scores_, future_, -1e4)), "add"); }
TEST_F(CanonicalMasks, RowsOfHiddenKeysStayUniform) {
  Value* hidden = b_("logical_or", {absent_, future_});
  EXPECT_EQ(after(fill(scores_, hidden, -1e4)), "add");
}
TEST_F(CanonicalMasks, FillsOfOneNumberMeet) {
  EXPECT_EQ(after(fill(fill(scores_, absent_, -1e9), future_, -1e9)), "add");
}
TEST_F(CanonicalMasks, FillsBesideInfinityMeet) {
  EXPECT_EQ(after(fill(fill(scores_, absent_, -1e9), future_, -kInf)), "add");
}
TEST_F(CanonicalMasks, FillsGoIntoTheMaskThatIsThere) {
  EXPECT_EQ(after(fill(add(scores_, mask(absent_, -3e38)), future_, -3e38)), "add");
}
TEST_F(CanonicalMasks, FillsGoIntoABias) {
  Value* bias = graph_.add_input("bias", {DType::kF32, {2, Dim::symbol("T"), Dim::symbol("T")}, nullptr});
  EXPECT_EQ(after(fill(add(bias, scores_), future_, -1e9)), "add");
}
TEST_F(CanonicalMasks, FillsBelowAnAddedMaskAreAdded) {
  EXPECT_EQ(after(add(fill(scores_, future_, -3e38), mask(absent_, -3e38))), "add add");
}
TEST_F(CanonicalMasks, FillsBelowOtherSumsStay) {
  Value* bias = graph_.add_input("bias", {DType::kF32, {2, Dim::symbol("T"), Dim::symbol("T")}, nullptr});
  EXPECT_EQ(after(add(fill(scores_, future_, -3e38), bias)), "where add");
}
TEST_F(CanonicalMasks, ScalesGoBelow) { EXPECT_EQ(after(times(fill(scores_, future_, -kInf), 0.3)), "mul add"); }
TEST_F(CanonicalMasks, ScalesGoBelowSums) {
  EXPECT_EQ(after(times(add(scores_, mask(future_, -1e9)), 0.25)), "mul add");
}
TEST_F(CanonicalMasks, DifferencesAreSums) {
  EXPECT_EQ(after(b_("sub", {scores_, b_("neg", {mask(future_, -1e9)})})), "add");
}

TEST_F(CanonicalMasks, FillsThatHideNothingStay) { EXPECT_EQ(after(fill(scores_, future_, -100)), "where"); }
TEST_F(CanonicalMasks, FillsOfTwoNumbersStay) {
  Value* hidden = b_("logical_or", {absent_, future_});
  EXPECT_EQ(after(fill(fill(scores_, hidden, -1e4), future_, -1e9)), "where where") << "one outweighs the other";
}
TEST_F(CanonicalMasks, ScalesThatBringFillsUpStay) {
  EXPECT_EQ(after(times(fill(scores_, future_, -1e4), 0.01)), "where mul");
}
TEST_F(CanonicalMasks, ScalesBelowZeroStay) {
  EXPECT_EQ(after(times(fill(scores_, b_("logical_not", {future_}), -1e9), -1e-3)), "where mul");
}
TEST_F(CanonicalMasks, ScalesOfABiasStay) {
  Value* bias = graph_.add_input("bias", {DType::kF32, {2, Dim::symbol("T"), Dim::symbol("T")}, nullptr});
  EXPECT_EQ(after(times(add(scores_, bias), 0.25)), "add mul");
}
TEST_F(CanonicalMasks, DifferencesFromABiasStay) {
  Value* bias = graph_.add_input("bias", {DType::kF32, {2, Dim::symbol("T"), Dim::symbol("T")}, nullptr});
  EXPECT_EQ(after(b_("sub", {scores_, bias})), "sub");
}

// What the miss of SDPA says of them.
TEST_F(CanonicalMasks, AFillThatHidesNothingIsNamed) {
  Value* v = graph_.add_input("v", {DType::kF32, {Dim::symbol("B"), 2, Dim::symbol("T"), 4}, nullptr});
  graph_.set_outputs({b_("matmul", {b_("softmax", {fill(scores_, future_, -100)}), v})});
  canonicalize(graph_);
  const MatchReport report = test::apply(graph_, "SDPA");
  ASSERT_EQ(report.misses.size(), 1u);
  EXPECT_NE(report.misses[0].str().find("a mask, found a fill of -100, needs -inf or one number of -10000 or less"),
            std::string::npos)
      << report.misses[0].str();
}

}  // namespace
}  // namespace atb
