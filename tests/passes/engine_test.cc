// SPDX-License-Identifier: Apache-2.0
// The engine: matching (orders, alternatives, several roots, reasons), transactional rewriting, the fixed point.
#include "core/log.h"
#include "graph_testing.h"
#include "passes/engine/matcher.h"
#include "passes/engine/rewriter.h"

namespace atb {
namespace {

using test::count;
using test::find;

const Shape kRow = {Dim::symbol("T"), 4};

class Engine : public ::testing::Test {
 protected:
  Engine() : b_(graph_) {
    a_ = graph_.add_input("a", {DType::kF32, kRow, nullptr});
    c_ = graph_.add_input("c", {DType::kF32, kRow, nullptr});
  }
  Value* make(std::string_view op, std::vector<Value*> inputs, const std::string& name) {
    return b_(op, std::move(inputs), {}, name);
  }
  Graph graph_;
  Builder b_;
  Value* a_;
  Value* c_;
};

// relu(x) * y, in either order, or relu(x) alone.
Pattern gated() {
  Pattern p("Gated", "FusedGated", 1);
  const PatternId x = p.any("x");
  const PatternId relu = p.op("relu", {"relu", "silu"}, {x});
  p.root(p.commutative(p.op("product", {"mul"}, {relu, p.any("y")})));
  p.rewrite([](const Match&, Rewriter&) {});
  return p;
}

TEST_F(Engine, MatchesEitherOrder) {
  Value* relu = make("relu", {a_}, "r");
  Node* first = make("mul", {relu, c_}, "first")->producer();
  Node* second = make("mul", {c_, relu}, "second")->producer();
  graph_.set_outputs({first->output()});
  const Pattern p = gated();
  // r has two readers, so neither may take it away.
  EXPECT_EQ(match_pattern(p, first).failure.constraint, "relu read only inside the pattern");
  graph_.set_input(second, 1, a_);
  const MatchResult result = match_pattern(p, first);
  ASSERT_TRUE(result.match);
  EXPECT_EQ(result.match->value("x"), a_);
  EXPECT_EQ(result.match->value("y"), c_);
  graph_.set_input(first, 0, c_);
  graph_.set_input(first, 1, relu);
  EXPECT_TRUE(match_pattern(p, first).match);
}

TEST_F(Engine, ReasonsNameTheDeepestFailure) {
  Node* node = make("mul", {make("add", {a_, c_}, "sum"), c_}, "product")->producer();
  const MatchFailure failure = match_pattern(gated(), node).failure;
  EXPECT_EQ(failure.str(), "Pattern Gated not matched at layer -1: product: relu, found add, needs relu or silu");
}

TEST_F(Engine, AlternativesAndOptionalInputs) {
  Pattern p("Alt", "Alt", 1);
  const PatternId core = p.op("core", {"relu"}, {p.any("x")});
  const PatternId scaled = p.op("scaled", {"mul"}, {core, p.constant("factor")});
  const PatternId either = p.one_of("either", {scaled, core});
  p.root(p.op("root", {"layer_norm"}, {either, p.optional(p.any("w")), p.optional(p.any("b"))}));
  Value* relu = make("relu", {a_}, "r");
  Node* plain = b_.node("layer_norm", {relu}, {{"eps", 1e-5}}, "plain");
  const MatchResult without = match_pattern(p, plain);
  ASSERT_TRUE(without.match);
  EXPECT_FALSE(without.match->has("w"));
  EXPECT_FALSE(without.match->has("factor"));
  EXPECT_EQ(without.match->value("either"), relu);
  graph_.set_input(plain, 0, make("mul", {relu, b_.scalar(2)}, "m"));
  EXPECT_TRUE(match_pattern(p, plain).match->has("factor"));
}

TEST_F(Engine, FindsFurtherRootsAmongReadersOfASharedValue) {
  Pattern p("Pair", "Pair", 1);
  const PatternId x = p.any("x");
  p.root(p.op("first", {"relu"}, {x}));
  p.root(p.op("second", {"silu"}, {x}));
  p.rewrite([](const Match&, Rewriter&) {});
  Node* relu = make("relu", {a_}, "r")->producer();
  make("silu", {c_}, "other");
  EXPECT_EQ(match_pattern(p, relu).failure.str(),
            "Pattern Pair not matched at layer -1: r: second, found none that reads %a, needs silu");
  Node* silu = make("silu", {a_}, "s")->producer();
  EXPECT_EQ(match_pattern(p, relu).match->node("second"), silu);
}

TEST_F(Engine, ConstraintsAreTriedOnEveryWayToMatch) {
  Pattern p("Pick", "Pick", 1);
  const PatternId x = p.any("x");
  p.root(p.op("first", {"relu"}, {x}));
  p.root(p.op("second", {"silu"}, {x}));
  p.where("named right", [](const Match& m) -> std::optional<Mismatch> {
    if (m.node("second")->name() == "right") return std::nullopt;
    return Mismatch{m.node("second"), m.node("second")->name(), "right"};
  });
  p.rewrite([](const Match&, Rewriter&) {});
  Node* relu = make("relu", {a_}, "r")->producer();
  make("silu", {a_}, "wrong");
  EXPECT_EQ(match_pattern(p, relu).failure.actual, "wrong");
  make("silu", {a_}, "right");
  EXPECT_TRUE(match_pattern(p, relu).match);
}

TEST_F(Engine, RewriterCommitsAndRestoresOrder) {
  Value* relu = make("relu", {a_}, "r");
  Value* product = make("mul", {relu, c_}, "p");
  graph_.set_outputs({product});
  {
    Rewriter rewriter(graph_, product->producer());  // built after r's other reader would need it
    rewriter.replace(relu, rewriter.value("silu", {a_}));
    rewriter.retire({relu->producer()});
    EXPECT_EQ(rewriter.commit(), std::nullopt);
  }
  verify(graph_, "test");
  EXPECT_EQ(count(graph_, "relu"), 0);
  EXPECT_TRUE(find(graph_, "r")->is("silu")) << "new values take the names of those they replace";
}

TEST_F(Engine, RewriterMovesNewNodesToWhereTheyAreNeeded) {
  Value* relu = make("relu", {a_}, "r");
  Value* first = make("mul", {relu, c_}, "first");
  Value* last = make("mul", {first, c_}, "last");
  graph_.set_outputs({last});
  Rewriter rewriter(graph_, nullptr);  // at the end
  rewriter.replace(relu, rewriter.value("silu", {a_}));
  EXPECT_EQ(rewriter.commit(), std::nullopt);
  verify(graph_, "test");
}

TEST_F(Engine, RewriterRefusesAnotherTypeAndLeavesNothingBehind) {
  Value* relu = make("relu", {a_}, "r");
  graph_.set_outputs({relu});
  Rewriter rewriter(graph_, relu->producer());
  rewriter.replace(relu, rewriter.transpose(a_, {1, 0}));
  EXPECT_EQ(rewriter.commit(), "replacing %r : f32[T, 4] by f32[4, T]");
  EXPECT_EQ(graph_.nodes().size(), 1u);
  verify(graph_, "test");
}

TEST_F(Engine, RewriterRefusesACycle) {
  Value* relu = make("relu", {a_}, "r");
  Value* product = make("mul", {relu, c_}, "p");
  graph_.set_outputs({product});
  Rewriter rewriter(graph_, relu->producer());
  rewriter.replace(relu, rewriter.value("silu", {product}));  // r would depend on its reader
  EXPECT_EQ(rewriter.commit(), "the replacement of %r would depend on itself");
  EXPECT_EQ(graph_.nodes().size(), 2u);
  verify(graph_, "test");
}

TEST_F(Engine, RewriterWithoutCommitChangesNothing) {
  graph_.set_outputs({make("relu", {a_}, "r")});
  { Rewriter(graph_, nullptr).value("silu", {a_}); }
  EXPECT_EQ(graph_.nodes().size(), 1u);
}

TEST_F(Engine, PatternsThatNeverSettleAreStopped) {
  Pattern p("Flip", "Flip", 1);
  p.root(p.op("root", {"relu", "silu"}, {p.any("x")}));
  p.rewrite([](const Match& m, Rewriter& r) {
    r.replace(m.root()->output(), r.value(m.root()->is("relu") ? "silu" : "relu", {m.value("x")}));
  });
  graph_.set_outputs({make("relu", {a_}, "r")});
  MatchReport report;
  EXPECT_THROW(apply_patterns(graph_, {&p}, report), Error);
}

TEST_F(Engine, ARewriteThatAShapeRuleRefusesIsAMiss) {
  Pattern p("Bad", "Bad", 1);
  p.root(p.op("root", {"relu"}, {p.any("x")}));
  p.rewrite([](const Match& m, Rewriter& r) {
    r.replace(m.root()->output(), r.value("transpose", {m.value("x")}, {{"perm", std::vector<int64_t>{0}}}));
  });
  Node* relu = make("relu", {a_}, "r")->producer();
  relu->set_layer(0);
  graph_.set_outputs({relu->output()});
  MatchReport report;
  EXPECT_EQ(apply_patterns(graph_, {&p}, report), 0);
  ASSERT_EQ(report.misses.size(), 1u);
  EXPECT_EQ(report.misses[0].constraint, "a valid replacement");
  EXPECT_EQ(graph_.nodes().size(), 1u);
}

}  // namespace
}  // namespace atb
