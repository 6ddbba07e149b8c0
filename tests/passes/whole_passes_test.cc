// SPDX-License-Identifier: Apache-2.0
// Canonical form, constant folding, common subexpressions, dead code.
#include <limits>

#include "graph_testing.h"
#include "passes/canonical/canonical.h"
#include "passes/cse.h"
#include "passes/dce.h"
#include "passes/fold_constants.h"

namespace atb {
namespace {

using test::count;
using test::find;

class PassTest : public ::testing::Test {
 protected:
  PassTest() : b_(graph_) { x_ = graph_.add_input("x", {DType::kF32, {Dim::symbol("T"), 2, 6}, nullptr}); }
  Value* constant(std::vector<int64_t> shape, std::vector<float> values) {
    return b_.constant(Constant::from_f32("c", std::move(shape), values));
  }
  void canonical(std::vector<Value*> outputs) {
    graph_.set_outputs(std::move(outputs));
    const auto before = graph_.clone();
    canonicalize(graph_);
    verify(graph_, "canonicalize");
    test::expect_same_numbers(*before, graph_);
  }
  Graph graph_;
  Builder b_;
  Value* x_;
};

TEST_F(PassTest, ConstantsGoRight) {
  canonical({b_("mul", {b_.scalar(3), b_("add", {constant({6}, {1, 2, 3, 4, 5, 6}), x_}, {}, "sum")}, {}, "product")});
  EXPECT_TRUE(find(graph_, "sum")->input(1)->is_constant());
  EXPECT_TRUE(find(graph_, "product")->input(1)->is_constant());
}

TEST_F(PassTest, ExactScalesMultiply) {
  canonical({b_("div", {x_, b_.scalar(8)}, {}, "exact"), b_("div", {x_, b_.scalar(3)}, {}, "inexact"),
             b_("div", {x_, x_}, {}, "not_constant")});
  EXPECT_TRUE(find(graph_, "exact")->is("mul"));
  EXPECT_EQ(find(graph_, "exact")->input(1)->constant()->to_f32()[0], 0.125F);
  EXPECT_TRUE(find(graph_, "inexact")->is("div"));
  EXPECT_TRUE(find(graph_, "not_constant")->is("div"));
}

TEST_F(PassTest, ViewsCollapse) {
  const Dim t = Dim::symbol("T");
  Value* reshaped = b_.reshape(b_.reshape(x_, {t, 12}), {t, 3, 4}, "reshaped");
  Value* turned = b_.transpose(b_.transpose(x_, {1, 0, 2}), {2, 1, 0}, "turned");
  Value* back = b_("relu", {b_.transpose(b_.transpose(x_, {1, 0, 2}), {1, 0, 2})}, {}, "back");
  Value* round = b_("silu", {b_.reshape(b_.reshape(x_, {t, 12}), {t, 2, 6})}, {}, "round");
  canonical({reshaped, turned, back, round});
  EXPECT_EQ(find(graph_, "reshaped")->input(0), x_);
  EXPECT_EQ(find(graph_, "turned")->attrs().get<std::vector<int64_t>>("perm"), (std::vector<int64_t>{2, 0, 1}));
  EXPECT_EQ(find(graph_, "back")->input(0), x_);
  EXPECT_EQ(find(graph_, "round")->input(0), x_);
}

TEST_F(PassTest, TransposesOfUnitAxesAreReshapes) {
  const Dim t = Dim::symbol("T");
  canonical({b_.transpose(b_.reshape(x_, {t, 1, 12}), {1, 0, 2}, "unit")});
  EXPECT_TRUE(find(graph_, "unit")->is("reshape"));
}

TEST_F(PassTest, FilledScoresAddAMask) {
  Value* cond = graph_.add_input("cond", {DType::kBool, {2, 6}, nullptr});
  Value* inf = b_.scalar(-std::numeric_limits<double>::infinity());
  Value* filled = b_("where", {cond, x_, inf}, {}, "filled");
  Value* reverse = b_("where", {cond, inf, x_}, {}, "reverse");
  Value* other = b_("where", {cond, x_, inf}, {}, "other");
  canonical(
      {b_("softmax", {filled}), b_("softmax", {reverse}), b_("softmax", {other}), b_("where", {cond, other, x_})});
  EXPECT_TRUE(find(graph_, "filled")->is("add"));
  EXPECT_TRUE(find(graph_, "reverse")->is("add"));
  EXPECT_TRUE(find(graph_, "other")->is("where")) << "read by more than softmax";
}

TEST_F(PassTest, LlamaGraphsAreCanonical) {
  const auto graph = test::tiny_llama();
  const size_t nodes = graph->nodes().size();
  canonicalize(*graph);
  // Only the reshapes of v and k that follow each other collapse; nothing is added.
  EXPECT_LE(graph->nodes().size(), nodes);
  EXPECT_EQ(count(*graph, "softmax"), 2);
  EXPECT_EQ(count(*graph, "mul"), count(*test::tiny_llama(), "mul"));
}

TEST_F(PassTest, FoldsWhatIsConstant) {
  Value* sum = b_("add", {constant({2}, {1, 2}), constant({2}, {10, 20})}, {}, "sum");
  Value* turned = b_.transpose(b_.reshape(sum, {1, 2}), {1, 0}, "turned");
  Value* half = b_.constant(
      Constant::from_storage("h", DType::kF16, nullptr, {1}, storage_from_bytes({std::byte{0}, std::byte{0x3c}}), 0));
  graph_.set_outputs(
      {turned, b_("add", {half, half}, {}, "two"), b_("less_equal", {b_.scalar(1), b_.scalar(2)}, {}, "b")});
  EXPECT_EQ(fold_constants(graph_), 5);
  verify(graph_, "fold_constants");
  ASSERT_TRUE(graph_.nodes().empty());
  EXPECT_EQ(graph_.outputs()[0]->constant()->to_f32(), (std::vector<float>{11, 22}));
  EXPECT_EQ(to_string(graph_.outputs()[0]->shape()), "[2, 1]");
  EXPECT_EQ(graph_.outputs()[1]->type().dtype, DType::kF16);
  EXPECT_EQ(graph_.outputs()[1]->constant()->to_f32()[0], 2.0F);
  EXPECT_EQ(graph_.outputs()[2]->type().dtype, DType::kBool);
}

TEST_F(PassTest, FoldsNeitherAbsentNorLargeNorCounting) {
  Value* absent = b_.constant(Constant::absent("gone", DType::kF32, nullptr, {4}));
  std::vector<float> many(1024);
  Value* column = constant({1024, 1}, many);
  Value* row = constant({1, 1024}, many);
  graph_.set_outputs({b_("relu", {absent}), b_("add", {column, row}), b_("iota", {}, {{"shape", Shape{3}}}),
                      b_("add", {b_("add", {column, row}), b_("add", {column, row})})});
  EXPECT_EQ(fold_constants(graph_), 0) << "4 MiB results stay computed";
}

TEST_F(PassTest, CommonSubexpressionsBecomeOne) {
  b_.set_layer(0);
  Value* first = b_("mul", {x_, b_.scalar(0.5)}, {}, "first");
  b_.set_layer(1);
  Value* second = b_("mul", {x_, b_.scalar(0.5)}, {}, "second");
  Value* other = b_("mul", {x_, b_.scalar(0.25)}, {}, "other");
  graph_.set_outputs({b_("relu", {first}), b_("relu", {second}), b_("silu", {other})});
  const auto before = graph_.clone();
  EXPECT_EQ(eliminate_common_subexpressions(graph_), 2);
  verify(graph_, "cse");
  EXPECT_EQ(count(graph_, "mul"), 2);
  EXPECT_EQ(find(graph_, "first")->layer(), -1) << "of two layers, so of none";
  test::expect_same_numbers(*before, graph_);
}

TEST_F(PassTest, DeadCodeGoes) {
  Value* used = b_("relu", {x_}, {}, "used");
  b_("silu", {b_("mul", {used, x_}, {}, "dead")}, {}, "deader");
  graph_.set_outputs({used});
  EXPECT_EQ(eliminate_dead_code(graph_), 2);
  EXPECT_EQ(graph_.nodes().size(), 1u);
  EXPECT_EQ(graph_.inputs().size(), 1u);
}

}  // namespace
}  // namespace atb
