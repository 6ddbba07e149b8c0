// SPDX-License-Identifier: Apache-2.0
// Masks are recognised by what they compute, in any spelling; what is not proven is unknown.
#include "passes/analysis/mask_predicate.h"

#include <gtest/gtest.h>

#include <limits>

#include "ir/builder.h"

namespace atb {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
using Kind = MaskPredicate::Kind;

class MaskTest : public ::testing::Test {
 protected:
  MaskTest() : b_(graph_) {
    Value* pos = b_("iota", {}, {{"shape", Shape{t_}}});
    keys_ = b_.reshape(pos, {Dim(1), t_});
    queries_ = b_.reshape(pos, {t_, Dim(1)});
  }
  Value* integer(int32_t value) { return b_.constant(Constant::from_i32("int", {}, std::span(&value, 1))); }
  Value* le(Value* a, Value* b) { return b_("less_equal", {a, b}); }
  Value* where(Value* c, Value* a, Value* b) { return b_("where", {c, a, b}); }
  Value* seen() { return b_.scalar(0); }
  Value* blocked() { return b_.scalar(-kInf); }
  void expect(Value* mask, Kind kind, int64_t window = 0) {
    const MaskPredicate found = analyse_mask(mask, t_, t_);
    EXPECT_EQ(found.kind, kind) << found.why;
    EXPECT_EQ(found.window, window);
    EXPECT_EQ(found.why.empty(), kind != Kind::kUnknown);
  }
  Graph graph_;
  Builder b_;
  Dim t_ = Dim::symbol("T");
  Value* keys_;
  Value* queries_;
};

TEST_F(MaskTest, Causal) {
  expect(where(le(keys_, queries_), seen(), blocked()), Kind::kCausal);
  expect(where(le(keys_, queries_), seen(), b_.scalar(-3.4e38)), Kind::kCausal);
  expect(where(le(b_("add", {queries_, integer(1)}), keys_), blocked(), seen()), Kind::kCausal);
  expect(where(le(integer(0), b_("sub", {queries_, keys_})), seen(), blocked()), Kind::kCausal);
  expect(where(le(b_("mul", {keys_, integer(3)}), b_("mul", {integer(3), queries_})), seen(), blocked()),
         Kind::kCausal);
  Value* turned = b_.transpose(where(le(queries_, keys_), seen(), blocked()), {1, 0});
  expect(turned, Kind::kCausal);
  expect(b_.reshape(where(le(keys_, queries_), seen(), blocked()), {1, 1, t_, t_}), Kind::kCausal);
  expect(b_("add", {where(le(keys_, queries_), seen(), blocked()), seen()}), Kind::kCausal);
}

TEST_F(MaskTest, Window) {
  Value* causal = le(keys_, queries_);
  Value* recent = le(b_("sub", {queries_, integer(3)}), keys_);
  expect(where(recent, where(causal, seen(), blocked()), blocked()), Kind::kWindow, 4);
  expect(b_("add", {where(recent, seen(), blocked()), where(causal, seen(), blocked())}), Kind::kWindow, 4);
  // q - k >= 4 is blocked.
  Value* old = le(b_("add", {keys_, integer(4)}), queries_);
  expect(where(old, blocked(), where(causal, seen(), blocked())), Kind::kWindow, 4);
}

TEST_F(MaskTest, Full) {
  expect(seen(), Kind::kFull);
  expect(where(le(integer(0), integer(1)), seen(), blocked()), Kind::kFull);
}

TEST_F(MaskTest, Unknown) {
  expect(graph_.add_input("mask", {DType::kF32, {t_, t_}, nullptr}), Kind::kUnknown);
  expect(where(le(queries_, keys_), seen(), blocked()), Kind::kUnknown);                           // anti-causal
  expect(where(le(keys_, b_("add", {queries_, integer(1)})), seen(), blocked()), Kind::kUnknown);  // sees one ahead
  expect(where(le(keys_, b_("sub", {queries_, integer(1)})), seen(), blocked()), Kind::kUnknown);  // not itself
  expect(where(le(keys_, integer(5)), seen(), blocked()), Kind::kUnknown);                         // absolute position
  expect(where(le(keys_, queries_), seen(), b_.scalar(-10)), Kind::kUnknown);                      // a bias, no mask
  expect(where(le(keys_, queries_), b_.scalar(1), blocked()), Kind::kUnknown);
  expect(b_.scalar(-kInf), Kind::kUnknown);
  EXPECT_EQ(analyse_mask(where(le(keys_, queries_), seen(), blocked()), t_, Dim::symbol("S")).kind, Kind::kUnknown);
}

TEST_F(MaskTest, Constants) {
  const auto constant = [&](auto visible) {
    std::vector<float> data;
    for (int p = 0; p < 6; ++p) {
      for (int s = 0; s < 6; ++s) data.push_back(visible(p, s) ? 0.0F : -std::numeric_limits<float>::infinity());
    }
    return analyse_mask(b_.constant(Constant::from_f32("m", {1, 1, 6, 6}, data)), 6, 6);
  };
  EXPECT_EQ(constant([](int p, int s) { return s <= p; }).kind, Kind::kCausal);
  EXPECT_EQ(constant([](int p, int s) { return s <= p && p - s < 3; }).window, 3);
  EXPECT_EQ(constant([](int, int) { return true; }).kind, Kind::kFull);
  EXPECT_EQ(constant([](int p, int s) { return s <= p && !(p == 4 && s == 2); }).kind, Kind::kUnknown);
  EXPECT_EQ(constant([](int p, int s) { return s >= p; }).kind, Kind::kUnknown);
  EXPECT_EQ(constant([](int, int) { return false; }).kind, Kind::kUnknown);
}

}  // namespace
}  // namespace atb
