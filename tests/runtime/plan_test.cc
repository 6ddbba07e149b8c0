// SPDX-License-Identifier: Apache-2.0
// Memory layout of plans, programs and device look-up.
#include "runtime/plan.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "core/thread_team.h"
#include "devices/device.h"
#include "ir/builder.h"
#include "runtime/executor.h"
#include "runtime/step_fixture.h"

namespace atb {
namespace {

// x -> silu -> add x -> relu, over [T, 4].
std::unique_ptr<Graph> chain() {
  auto graph = std::make_unique<Graph>("chain");
  Builder b(*graph);
  Value* x = graph->add_input("x", {DType::kF32, {Dim::symbol("T"), 4}, nullptr});
  Value* a = b("silu", {x}, {}, "a");
  Value* c = b("add", {a, x}, {}, "c");
  graph->set_outputs({b("relu", {c}, {}, "y")}, {"y"});
  return graph;
}

TEST(Plan, RunsAGraphWithoutState) {
  PackedStore store;
  const Program program(chain(), find_device("cpu"), store, {});
  const Plan plan(program, {{"T", 8}});
  std::vector<float> x = {-2, -1, 0, 1, 2, 3, 4, 5}, y(8);
  std::vector<std::byte> arena(plan.arena_bytes());
  Frame frame = plan.resolve({{"T", 2}}, {reinterpret_cast<std::byte*>(x.data())},
                             {reinterpret_cast<std::byte*>(y.data())}, arena.data());
  ThreadTeam team(2);
  Executor executor(team);
  executor.run(program, frame, {});
  for (size_t i = 0; i < x.size(); ++i) {
    const float sum = x[i] + x[i] / (1 + std::exp(-x[i]));
    EXPECT_NEAR(y[i], std::max(sum, 0.0f), 1e-6f);
  }
}

TEST(Plan, RefusesStepsBeyondItsBucket) {
  PackedStore store;
  const Program program(chain(), find_device("cpu"), store, {});
  const Plan plan(program, {{"T", 8}});
  EXPECT_THROW(plan.resolve({{"T", 9}}, {nullptr}, {nullptr}, nullptr), Error);
}

TEST(Plan, BuffersAliveAtOnceDoNotOverlap) {
  PackedStore store;
  const auto layout = kv_layout_of(*test::step_graph(), Precision::kExact);
  const Program program(test::step_graph(), find_device("null"), store, {.kv = &*layout});
  const Bindings largest{{"T", 64}, {"L", 8}};
  const Plan plan(program, largest);
  EXPECT_GE(plan.arena_bytes(), plan.lower_bound_bytes());
  std::vector<std::byte> arena(plan.arena_bytes());
  std::vector<std::byte*> inputs(program.graph().inputs().size(), nullptr);
  Frame frame = plan.resolve(largest, inputs, {nullptr, nullptr}, arena.data());

  // Each executed node's operands and results are distinct ranges, but for results written in place.
  for (size_t i = 0; i < frame.items.size(); ++i) {
    const Frame::Item& item = frame.items[i];
    for (size_t a = 0; a < item.outputs.size(); ++a) {
      const TensorView& out = item.outputs[a];
      if (out.data == nullptr) continue;
      const std::byte* end = out.data + static_cast<size_t>(out.size()) * dtype_size(out.dtype);
      EXPECT_GE(out.data, arena.data());
      EXPECT_LE(end, arena.data() + arena.size());
      for (size_t b = 0; b < a; ++b) EXPECT_NE(item.outputs[b].data, out.data);
      for (const TensorView& in : item.inputs) {
        if (in.data == nullptr || in.data == out.data) continue;
        const std::byte* in_end = in.data + static_cast<size_t>(in.size()) * dtype_size(in.dtype);
        const bool apart =
            in_end <= out.data || end <= in.data || in.data < arena.data() || in.data >= arena.data() + arena.size();
        EXPECT_TRUE(apart) << program.items()[i].node->name();
      }
    }
  }
}

TEST(Plan, ArenaIsReusedAcrossLayers) {
  PackedStore store;
  const auto layout = kv_layout_of(*test::step_graph(), Precision::kExact);
  const Program program(test::step_graph(), find_device("null"), store, {.kv = &*layout});
  const Plan plan(program, {{"T", 64}, {"L", 1}});
  size_t all = 0;
  for (const Program::Item& item : program.items()) {
    for (const Value* output : item.node->outputs()) {
      const Dim bytes = num_elements(output->shape()) * static_cast<int64_t>(dtype_size(output->type().dtype));
      all += static_cast<size_t>(bytes.eval({{"T", 64}, {"L", 1}}));
    }
  }
  EXPECT_LT(plan.arena_bytes(), all / 2);
  EXPECT_LE(static_cast<double>(plan.arena_bytes()), 1.1 * static_cast<double>(plan.lower_bound_bytes()));
}

TEST(Program, StateNeedsAKernelAndCachesOfOneShape) {
  EXPECT_FALSE(kv_layout_of(*chain(), Precision::kExact).has_value());
  const auto exact = kv_layout_of(*test::step_graph(), Precision::kExact);
  ASSERT_TRUE(exact.has_value());
  EXPECT_EQ(exact->slots, 2);
  EXPECT_EQ(exact->kv_heads, 2);
  EXPECT_EQ(exact->head_dim, 8);
  EXPECT_EQ(exact->dtype, DType::kF32);
  EXPECT_EQ(kv_layout_of(*test::step_graph(), Precision::kFast)->dtype, DType::kBF16);
}

}  // namespace
}  // namespace atb
