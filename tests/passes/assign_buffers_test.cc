// SPDX-License-Identifier: Apache-2.0
// Lifetimes, in-place results and the plan-memory pass.
#include "passes/assign_buffers.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/log.h"
#include "ir/builder.h"
#include "passes/registry.h"

namespace atb {
namespace {

Type rows_of(int64_t n) { return {DType::kF32, {Dim::symbol("T"), n}, nullptr}; }

BufferPlan plan_of(const Graph& graph) { return assign_buffers(graph, schedule(graph), {{"T", 10}}); }

// x -> a -> c -> d -> output y, each of [T, 16].
struct Chain {
  Graph graph;
  Value* a;
  Value* c;
  Value* d;

  Chain() {
    Builder b(graph);
    a = b("silu", {graph.add_input("x", rows_of(16))}, {}, "a");
    c = b("silu", {a}, {}, "c");
    d = b("silu", {c}, {}, "d");
    graph.set_outputs({b("silu", {d}, {}, "y")});
  }
};

TEST(AssignBuffers, ABufferIsReusedOnceNobodyReadsIt) {
  const Chain chain;
  const BufferPlan plan = plan_of(chain.graph);
  EXPECT_EQ(plan.offsets.size(), 3u);  // not y: it goes to the caller's memory
  EXPECT_EQ(plan.arena_bytes, plan.lower_bound_bytes);
  EXPECT_LE(plan.arena_bytes, 2 * 10 * 16 * 4);
}

TEST(AssignBuffers, UnsharedEachValueKeepsItsPlace) {
  const Chain chain;
  const BufferPlan plan = assign_buffers(chain.graph, schedule(chain.graph), {{"T", 10}}, false);
  EXPECT_EQ(plan.arena_bytes, 3 * 10 * 16 * 4);
  EXPECT_NE(plan.offsets.at(chain.a), plan.offsets.at(chain.c));
  EXPECT_NE(plan.offsets.at(chain.a), plan.offsets.at(chain.d));
  EXPECT_NE(plan.offsets.at(chain.c), plan.offsets.at(chain.d));
}

TEST(AssignBuffers, AViewKeepsItsBufferAlive) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.add_input("x", rows_of(16));
  Value* a = b("silu", {x}, {}, "a");
  Value* view = b.reshape(a, {Dim::symbol("T"), 4, 4});
  Value* c = b("silu", {x}, {}, "c");
  Value* d = b("relu", {c}, {}, "d");
  Value* e = b("relu", {b.reshape(d, {Dim::symbol("T"), 4, 4})}, {}, "e");
  graph.set_outputs({b("add", {view, e}, {}, "y")});
  const BufferPlan plan = plan_of(graph);
  EXPECT_NE(plan.offsets.at(a), plan.offsets.at(c));
  EXPECT_NE(plan.offsets.at(a), plan.offsets.at(d));
  EXPECT_NE(plan.offsets.at(a), plan.offsets.at(e));
}

TEST(AssignBuffers, BindingsAreParsed) {
  EXPECT_EQ(parse_bindings("T=64,L=8"), (Bindings{{"T", 64}, {"L", 8}}));
  EXPECT_TRUE(parse_bindings("").empty());
  for (const char* text : {"T", "T=", "=3", "T=x", "T=-1", "T=3,,", "T=99999999999999999999"}) {
    EXPECT_THROW(parse_bindings(text), Error) << text;
  }
}

TEST(AssignBuffers, ThePassLogsTheArena) {
  Graph graph;
  Builder b(graph);
  Value* a = b("silu", {graph.add_input("x", rows_of(16))}, {}, "a");
  graph.set_outputs({b("relu", {a}, {}, "y")});
  std::vector<std::string> lines;
  const LogLevel level = log_level();
  set_log_level(LogLevel::kInfo);
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  MatchReport report;
  PassRegistry::instance().run("plan-memory=T=10", graph, report);
  set_log_sink(nullptr);
  set_log_level(level);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "[PlanMemory] %a at 0");
  EXPECT_EQ(lines[1], "[PlanMemory] arena 640 bytes, lower bound 640");
}

}  // namespace
}  // namespace atb
