// SPDX-License-Identifier: Apache-2.0
// concat, slice, broadcast and take beyond the table of cases: hand-worked values, symbols, strides and messages.
#include <string>
#include <vector>

#include "ir/bound_shapes.h"
#include "ops/error_text.h"
#include "ops/kernel_harness.h"

namespace atb::testing {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

const Operand kTwoRows = activation({2, 3}, {0, 1, 2, 10, 11, 12});

Floats values(const OpCase& test) {
  const OpRun run = run_op(test);
  EXPECT_TRUE(same_bits(run.kernel[0], run.f32[0])) << test.op;
  return run.kernel[0].f;
}

OpCase slice(Operand x, int64_t axis, Shape bounds, int64_t step = 1) {
  return {.op = "slice",
          .inputs = {std::move(x)},
          .attrs = {{"axis", axis}, {"bounds", std::move(bounds)}, {"step", step}}};
}

OpCase concat(std::vector<Operand> x, int64_t axis) {
  return {.op = "concat", .inputs = std::move(x), .attrs = {{"axis", axis}}};
}

OpCase broadcast(Operand x, Shape shape) {
  return {.op = "broadcast", .inputs = {std::move(x)}, .attrs = {{"shape", std::move(shape)}}};
}

TEST(Concat, HandWorked) {
  EXPECT_EQ(values(concat({kTwoRows, activation({2, 1}, {7, 8})}, 1)), (Floats{0, 1, 2, 7, 10, 11, 12, 8}));
  EXPECT_EQ(values(concat({kTwoRows, activation({1, 3}, {7, 8, 9})}, -2)), (Floats{0, 1, 2, 10, 11, 12, 7, 8, 9}));
  EXPECT_EQ(values(concat({kTwoRows}, 0)), kTwoRows.tensor->f);
  EXPECT_EQ(values(concat({kTwoRows, activation({2, 0}, {})}, 1)), kTwoRows.tensor->f);
}

TEST(Concat, SaysWhatDoesNotFit) {
  expect_refused(concat({}, 0), "needs one input or more");
  expect_refused(concat({kTwoRows, activation({3, 3}, random_values(9, 1))}, 1),
                 "extents beside the axis differ: 2 and 3");
  expect_refused(concat({kTwoRows, activation({2}, {1, 2})}, 1), "must have rank 2");
  expect_refused(concat({kTwoRows, integers({2, 3}, {1, 2, 3, 4, 5, 6})}, 1), "dtypes differ: f32[2, 3] and i32[2, 3]");
  expect_refused(concat({kTwoRows}, 2), "axis 2 is not in [-2, 2) of x (%in0: f32[2, 3])");
}

TEST(Slice, HandWorked) {
  EXPECT_EQ(values(slice(kTwoRows, 1, {Dim(1), Dim(3)})), (Floats{1, 2, 11, 12}));
  EXPECT_EQ(values(slice(kTwoRows, -1, {Dim(0), Dim(3)}, 2)), (Floats{0, 2, 10, 12}));
  EXPECT_EQ(values(slice(kTwoRows, 0, {Dim(1), Dim(2)})), (Floats{10, 11, 12}));
  EXPECT_TRUE(values(slice(kTwoRows, 0, {Dim(1), Dim(1)})).empty());
}

TEST(Slice, SaysWhatDoesNotFit) {
  expect_refused(slice(kTwoRows, 1, {Dim(1), Dim(4)}), "bounds [1, 4]: 0 <= begin <= end <= 3 must hold");
  expect_refused(slice(kTwoRows, 1, {Dim(-1), Dim(2)}), "bounds [-1, 2]");
  expect_refused(slice(kTwoRows, 1, {Dim(2), Dim(1)}), "bounds [2, 1]");
  expect_refused(slice(kTwoRows, 1, {Dim(2)}), "must be [begin, end]");
  expect_refused(slice(kTwoRows, 1, {Dim(0), Dim(2)}, 0), "step 0 must be 1 or more");
  expect_refused(slice(kTwoRows, -3, {Dim(0), Dim(2)}), "axis -3 is not in [-2, 2)");
}

// The last token of x, and what symbols leave open until they have values.
TEST(Slice, BoundsMayHaveSymbols) {
  const Dim tokens = Dim::symbol("T", 0, 100);
  Graph graph;
  Value* x = graph.add_input("x", {DType::kF32, {tokens, Dim(2)}});
  Builder b(graph);
  Value* last = b("slice", {x}, {{"axis", int64_t{0}}, {"bounds", Shape{tokens - Dim(1), tokens}}});
  EXPECT_EQ(last->shape(), (Shape{Dim(1), Dim(2)}));
  graph.set_outputs({last});
  const RefTensor<float> given{DType::kF32, {3, 2}, {1, 2, 3, 4, 5, 6}, {}, nullptr};
  EXPECT_EQ(interpret<float>(graph, {{"x", given}})[0].f, (Floats{5, 6}));
  EXPECT_NO_THROW(check_bound_shapes(graph, {{"T", 3}}));
  EXPECT_THROW(check_bound_shapes(graph, {{"T", 0}}), Error);
}

TEST(Broadcast, HandWorked) {
  EXPECT_EQ(values(broadcast(activation({2, 1}, {5, 6}), {Dim(2), Dim(3)})), (Floats{5, 5, 5, 6, 6, 6}));
  EXPECT_EQ(values(broadcast(activation({2}, {5, 6}), {Dim(2), Dim(2)})), (Floats{5, 6, 5, 6}));
  EXPECT_EQ(values(broadcast(activation({}, {5}), {})), (Floats{5}));
  EXPECT_TRUE(values(broadcast(activation({1}, {5}), {Dim(0)})).empty());
}

TEST(Broadcast, SaysWhatDoesNotFit) {
  expect_refused(broadcast(kTwoRows, {Dim(2), Dim(4)}), "extents 3 and 4 do not broadcast");
  expect_refused(broadcast(kTwoRows, {Dim(3)}), "x [2, 3] does not broadcast to shape [3]");
  expect_refused(broadcast(kTwoRows, {Dim(1), Dim(3)}), "x [2, 3] does not broadcast to shape [1, 3]");
}

TEST(Take, HandWorked) {
  const Operand x = activation({2, 3, 2}, {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15});
  const auto take = [&](std::vector<Operand> indices) {
    std::vector<Operand> inputs{x};
    inputs.insert(inputs.end(), indices.begin(), indices.end());
    return OpCase{.op = "take", .inputs = std::move(inputs)};
  };
  EXPECT_EQ(values(take({integers({2}, {1, 0}), integers({2}, {0, -1}, DType::kI64)})), (Floats{10, 11, 4, 5}));
  EXPECT_EQ(values(take({integers({2, 1}, {1, 0}), integers({2}, {0, 2})})), (Floats{10, 11, 14, 15, 0, 1, 4, 5}));
  EXPECT_EQ(values(take({integers({}, {1}), integers({}, {1}), integers({2}, {1, -2})})), (Floats{13, 12}));
  EXPECT_EQ(values(take({integers({1}, {-1})})), (Floats{10, 11, 12, 13, 14, 15}));
  EXPECT_TRUE(values(take({integers({0}, {})})).empty());
}

TEST(Take, IndicesOutsideFailTheStep) {
  for (const int64_t index : {2, -3}) {
    const OpCase test{.op = "take", .inputs = {kTwoRows, integers({2}, {1, index})}};
    EXPECT_THROW(run_op(test), Error);
    Graph graph;
    const Node* node = build_op_graph(graph, test);
    PackedStore store;
    const std::unique_ptr<Kernel> kernel = make_case_kernel(test, *node, store);
    KernelRun run(test, *node, *kernel);
    EXPECT_EQ(run.run({})->outputs[0].f, (Floats{10, 11, 12, 0, 0, 0}));
    ASSERT_EQ(run.faults().size(), 1u);
    EXPECT_NE(run.faults()[0].find("set the fault flag"), std::string::npos);
  }
}

TEST(Take, SaysWhatDoesNotFit) {
  expect_refused({.op = "take", .inputs = {kTwoRows}}, "0 indices for x f32[2, 3]: one to as many as it has axes");
  const Operand index = integers({1}, {0});
  expect_refused({.op = "take", .inputs = {kTwoRows, index, index, index}}, "3 indices for x f32[2, 3]");
  expect_refused({.op = "take", .inputs = {kTwoRows, activation({1}, {0})}}, "must be i32 or i64");
}

}  // namespace
}  // namespace atb::testing
