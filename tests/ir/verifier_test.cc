// SPDX-License-Identifier: Apache-2.0
// The verifier: each invariant broken by one edit that a pass could get wrong, next to the graph that is right.
#include "ir/verifier.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "ir/builder.h"
#include "ir/text.h"

namespace atb {
namespace {

constexpr const char* kText = R"(graph @g(%x: f32[T, 4], %y: f32[T, 5]) {
  symbols T in [1, 8]
  const @w : f32[4]
  %a = silu(%x) : f32[T, 4]
  %b = rms_norm(%a, @w) {eps=0.5} : f32[T, 4]
  %c = reshape(%b) {shape=[4, T]} : f32[4, T]
  return %c
}
)";

class VerifierTest : public ::testing::Test {
 protected:
  VerifierTest() : graph_(parse_graph(kText)) { verify(*graph_, "parse"); }

  Node* node(size_t i) { return graph_->nodes()[i]; }

  // The message of the violation, without its fixed beginning; empty if there is none.
  std::string problem() {
    try {
      verify(*graph_, "test");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInternal);
      const std::string message = error.what();
      const std::string start = "[verifier] after test: ";
      EXPECT_EQ(message.substr(0, start.size()), start);
      return message.substr(start.size());
    }
    return "";
  }

  std::unique_ptr<Graph> graph_;
};

TEST_F(VerifierTest, UseBeforeDefinition) {
  graph_->move_before(node(1), node(0));
  EXPECT_EQ(problem(), "b: reads a before it is defined");
}

TEST_F(VerifierTest, InputOfAnotherGraph) {
  const std::unique_ptr<Graph> other = parse_graph(kText);
  graph_->set_input(node(0), 0, other->inputs()[0]);
  EXPECT_EQ(problem(), "a: reads x of another graph");
  graph_->set_input(node(0), 0, graph_->inputs()[0]);
  EXPECT_EQ(problem(), "");
}

TEST_F(VerifierTest, OutputTypeThatNoLongerFollows) {
  graph_->set_input(node(0), 0, graph_->inputs()[1]);
  EXPECT_EQ(problem(), "a: output 0 is f32[T, 4], its rule gives f32[T, 5]");
}

TEST_F(VerifierTest, InputTypesThatNoLongerFit) {
  graph_->set_input(node(1), 0, graph_->inputs()[1]);
  EXPECT_EQ(problem(), "b: [rms_norm] b: the weight and the last extent of x differ: 4 and 5");
}

TEST_F(VerifierTest, AttributeEditWithoutInference) {
  graph_->set_attr(node(2), "shape", Shape{2, Dim::symbol("T") * 2});
  EXPECT_EQ(problem(), "c: output 0 is f32[4, T], its rule gives f32[2, 2*T]");
  graph_->reinfer(node(2));
  EXPECT_EQ(problem(), "");
}

TEST_F(VerifierTest, RequiredInputMissing) {
  graph_->set_input(node(1), 1, nullptr);
  EXPECT_EQ(problem(), "b: [rms_norm] b: input w is missing; inputs are (x, w)");
}

TEST_F(VerifierTest, OutputOfAnotherGraph) {
  const std::unique_ptr<Graph> other = parse_graph(kText);
  EXPECT_THROW(graph_->set_outputs({other->outputs()[0]}), Error);
}

TEST_F(VerifierTest, SymbolRangesThatContradict) {
  graph_->add_input("z", {DType::kF32, {Dim::symbol("T", 100, 200)}});
  EXPECT_EQ(problem(), "symbol T: its ranges have nothing in common");
}

// State: kv -> append -> kv1 -> append -> kv2, attention between.
class VerifierStateTest : public VerifierTest {
 protected:
  VerifierStateTest() {
    graph_ = std::make_unique<Graph>("g");
    Builder b(*graph_);
    k_ = graph_->add_input("k", {DType::kF32, {Dim::symbol("T"), 2, 8}});
    kv_ = graph_->add_input("kv", {DType::kState, {}});
    first_ = b.node("kv_append", {k_, k_, kv_}, {{"slot", int64_t{0}}}, "first");
    read_ = b.node("flash_attention_kv", {k_, first_->output()},
                   {{"slot", int64_t{0}}, {"scale", 0.5}, {"kv_heads", int64_t{2}}}, "read");
    second_ = b.node("kv_append", {k_, k_, first_->output()}, {{"slot", int64_t{1}}}, "second");
    graph_->set_outputs({read_->output(), second_->output()});
    verify(*graph_, "build");
  }

  Value* k_;
  Value* kv_;
  Node* first_;
  Node* read_;
  Node* second_;
};

TEST_F(VerifierStateTest, TwoSuccessors) {
  graph_->set_input(second_, 2, kv_);
  EXPECT_EQ(problem().substr(0, 36), "kv: the state has two successors, fi");
}

TEST_F(VerifierStateTest, ReadAfterItsChange) {
  graph_->move_before(read_, nullptr);
  EXPECT_EQ(problem(), "read: reads the state first after second has changed it");
}

TEST_F(VerifierStateTest, OutputThatIsChanged) {
  graph_->set_outputs({read_->output(), first_->output()});
  EXPECT_EQ(problem(), "first: the state is an output, but second changes it");
}

}  // namespace
}  // namespace atb
