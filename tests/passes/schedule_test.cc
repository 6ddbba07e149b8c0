// SPDX-License-Identifier: Apache-2.0
// Stages and views of the schedule.
#include "passes/schedule.h"

#include <gtest/gtest.h>

#include "ir/builder.h"
#include "ir/verifier.h"
#include "passes/stage_sketch.h"

namespace atb {
namespace {

Type vector_of(int64_t n) { return {DType::kF32, {n}, nullptr}; }

TEST(Schedule, BranchesOfADiamondShareAStage) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.add_input("x", vector_of(4));
  Value* a = b("silu", {x}, {}, "a");
  Value* left = b("relu", {a}, {}, "left");
  Value* right = b("silu", {a}, {}, "right");
  Value* joined = b("add", {left, right}, {}, "joined");
  graph.set_outputs({joined});
  const Schedule plan = schedule(graph);
  ASSERT_EQ(plan.stages.size(), 3u);
  EXPECT_EQ(plan.stages[0], std::vector<Node*>{a->producer()});
  EXPECT_EQ(plan.stages[1], (std::vector<Node*>{left->producer(), right->producer()}));
  EXPECT_EQ(plan.stages[2], std::vector<Node*>{joined->producer()});
  EXPECT_EQ(plan.num_nodes(), 4);
}

TEST(Schedule, OneByOneEachNodeHasAStage) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.add_input("x", vector_of(4));
  Value* left = b("relu", {x}, {}, "left");
  Value* right = b("silu", {b.reshape(x, {4})}, {}, "right");
  Value* joined = b("add", {left, right}, {}, "joined");
  graph.set_outputs({joined});
  const Schedule plan = schedule(graph, false);
  ASSERT_EQ(plan.stages.size(), 3u);
  for (const auto& stage : plan.stages) EXPECT_EQ(stage.size(), 1u);
  EXPECT_EQ(plan.stages[2], std::vector<Node*>{joined->producer()});
}

TEST(Schedule, TheSketchShowsTheStagesOfALayer) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.add_input("x", vector_of(4));
  b.set_layer(0);
  Value* a = b("silu", {x}, {}, "a");
  b.set_layer(1);
  Value* left = b("relu", {a}, {}, "left");
  Value* right = b("silu", {a}, {}, "right");
  graph.set_outputs({b("add", {left, right}, {}, "joined")});
  const StageSketch sketch = sketch_stages(schedule(graph), 1);
  EXPECT_EQ(sketch.total, 3);
  EXPECT_EQ(sketch.side_by_side, 1);
  ASSERT_EQ(sketch.drawn.size(), 2u);
  EXPECT_EQ(sketch.drawn[0].number, 1);
  ASSERT_EQ(sketch.drawn[0].nodes.size(), 2u);
  EXPECT_EQ(sketch.drawn[0].nodes[1].name, "right");
  EXPECT_EQ(sketch.drawn[0].nodes[1].op, "silu");
  EXPECT_EQ(sketch.drawn[1].nodes[0].name, "joined");
}

TEST(Schedule, ViewsTakeNoStage) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.add_input("x", {DType::kF32, {2, 3}, nullptr});
  Value* flat = b.reshape(x, {6});
  Value* a = b("silu", {flat}, {}, "a");
  Value* back = b.reshape(a, {2, 3});
  Value* turned = b.transpose(back, {1, 0});
  Value* c = b("relu", {turned}, {}, "c");
  graph.set_outputs({c});
  const Schedule plan = schedule(graph);
  ASSERT_EQ(plan.stages.size(), 2u);
  EXPECT_EQ(plan.stages[1], std::vector<Node*>{c->producer()});
}

TEST(Schedule, ReshapeOfATransposeIsACopy) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.add_input("x", {DType::kF32, {2, 3}, nullptr});
  Value* turned = b.transpose(x, {1, 0});
  Value* flat = b.reshape(turned, {6});
  graph.set_outputs({flat});
  EXPECT_FALSE(is_dense(*turned));
  EXPECT_FALSE(aliases_input(*flat->producer()));
  EXPECT_EQ(schedule(graph).num_nodes(), 1);
}

TEST(Schedule, AppliedOrderIsAnExecutionOrder) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.add_input("x", vector_of(4));
  Value* a = b("silu", {x}, {}, "a");
  Value* deep = b("relu", {a}, {}, "deep");
  Value* late = b("silu", {b.reshape(x, {2, 2})}, {}, "late");
  graph.set_outputs({deep, late});
  apply_schedule(graph);
  verify(graph, "schedule");
  EXPECT_LT(graph.position(late->producer()), graph.position(deep->producer()));
}

}  // namespace
}  // namespace atb
