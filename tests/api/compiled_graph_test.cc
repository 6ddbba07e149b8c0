// SPDX-License-Identifier: Apache-2.0
// Graphs called with arrays: results, shapes, strides, ownership, what is refused, and threads.
#include "api/compiled_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "api/input_symbols.h"
#include "core/error.h"
#include "ir/text.h"

namespace atb {
namespace {

constexpr const char* kGated = R"(
graph @gated(%x: f32[T, 6]) {
  symbols T in [0, 1000]
  const @up : f32[5, 6]
  const @gate : f32[5, 6]
  %g = linear(%x, @gate) : f32[T, 5]
  %a = silu(%g) : f32[T, 5]
  %u = linear(%x, @up) : f32[T, 5]
  %y = mul(%a, %u) : f32[T, 5]
  return %y
}
)";

std::vector<float> ramp(int64_t count, float scale) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
  return values;
}

TensorView view_of(std::vector<float>& values, std::vector<int64_t> shape) {
  return TensorView::dense(reinterpret_cast<std::byte*>(values.data()), DType::kF32, shape);
}

std::vector<float> values_of(const Tensor& tensor) {
  const float* data = tensor.view().as<const float>();
  return {data, data + tensor.view().size()};
}

std::unique_ptr<CompiledGraph> gated(int threads = 1) {
  std::unique_ptr<Graph> graph = parse_graph(kGated);
  bind_constant(*graph, Constant::from_f32("up", {5, 6}, ramp(30, 0.25f)));
  bind_constant(*graph, Constant::from_f32("gate", {5, 6}, ramp(30, -0.125f)));
  CompileOptions options;
  options.threads = threads;
  return std::make_unique<CompiledGraph>(std::move(graph), options);
}

std::vector<float> gated_by_hand(const std::vector<float>& x) {
  const std::vector<float> up = ramp(30, 0.25f), gate = ramp(30, -0.125f);
  std::vector<float> y;
  for (size_t row = 0; row < x.size() / 6; ++row) {
    for (size_t o = 0; o < 5; ++o) {
      double u = 0, g = 0;
      for (size_t i = 0; i < 6; ++i) {
        u += static_cast<double>(x[row * 6 + i]) * up[o * 6 + i];
        g += static_cast<double>(x[row * 6 + i]) * gate[o * 6 + i];
      }
      y.push_back(static_cast<float>(u * g / (1 + std::exp(-g))));
    }
  }
  return y;
}

std::string message_of(CompiledGraph& compiled, std::vector<TensorView> inputs) {
  try {
    compiled.run(inputs);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Branches B and C of A: one stage at level 3, one after another below.
constexpr const char* kDiamond = R"(
graph @diamond(%x: f32[T, 6]) {
  symbols T in [0, 1000]
  const @left : f32[5, 6]
  const @right : f32[5, 6]
  %a = silu(%x) : f32[T, 6]
  %b = linear(%a, @left) : f32[T, 5]
  %c = linear(%a, @right) : f32[T, 5]
  %e = softmax(%c) {axis=1} : f32[T, 5]
  %d = add(%b, %e) : f32[T, 5]
  return %d
}
)";

TEST(CompiledGraph, PlanningChangesNoBit) {
  std::vector<float> x = ramp(7 * 6, 0.5f);
  std::vector<std::vector<float>> results;
  for (const int64_t level : {0, 1, 2, 3}) {
    std::unique_ptr<Graph> graph = parse_graph(kDiamond);
    bind_constant(*graph, Constant::from_f32("left", {5, 6}, ramp(30, 0.25f)));
    bind_constant(*graph, Constant::from_f32("right", {5, 6}, ramp(30, -0.125f)));
    CompileOptions options;
    options.threads = 2;
    options.opt_level = level;
    CompiledGraph compiled(std::move(graph), options);
    EXPECT_EQ(compiled.report().stages.side_by_side, level == 3 ? 1 : 0);
    EXPECT_EQ(compiled.report().stages.total, level == 3 ? 4 : 5);
    const std::vector<TensorView> inputs{view_of(x, {7, 6})};
    results.push_back(values_of(compiled.run(inputs)[0]));
  }
  EXPECT_EQ(results[2], results[3]);
  for (size_t i = 0; i < results[3].size(); ++i) EXPECT_NEAR(results[0][i], results[3][i], 1e-5f);
  CompileOptions options;
  options.opt_level = 7;
  try {
    CompiledGraph compiled(parse_graph(kDiamond), options);
    ADD_FAILURE() << "there is no level 7";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("opt_level is 7"), std::string::npos) << error.what();
  }
}

TEST(CompiledGraph, FusesAndRunsAnyLength) {
  const auto compiled = gated();
  EXPECT_NE(print(compiled->graph()).find("fused_gate_up"), std::string::npos) << print(compiled->graph());
  for (const int64_t rows : {1, 2, 7, 33, 0, 2}) {
    std::vector<float> x = ramp(rows * 6, 0.5f);
    const std::vector<Tensor> y = compiled->run({{view_of(x, {rows, 6})}});
    ASSERT_EQ(y.size(), 1u);
    EXPECT_EQ(y[0].shape, (std::vector<int64_t>{rows, 5}));
    const std::vector<float> expected = gated_by_hand(x), actual = values_of(y[0]);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-4f) << rows << " " << i;
  }
  EXPECT_EQ(compiled->plans(), 5);  // the length 2 came twice
}

// Shares `values` as arrays from outside do; `owner` tells whether somebody still has them.
ConstantRef borrowed(const std::string& name, std::vector<int64_t> shape, std::vector<float> values,
                     std::weak_ptr<const void>& owner) {
  auto held = std::make_shared<const std::vector<float>>(std::move(values));
  auto storage = std::make_shared<Storage>();
  storage->bytes = std::as_bytes(std::span(*held));
  storage->owner = held;
  owner = held;
  return Constant::from_storage(name, DType::kF32, nullptr, std::move(shape), std::move(storage), 0);
}

TEST(CompiledGraph, KeepsNoWeightBesideItsPackedForm) {
  std::weak_ptr<const void> up, gate;
  std::unique_ptr<Graph> graph = parse_graph(kGated);
  bind_constant(*graph, borrowed("up", {5, 6}, ramp(30, 0.25f), up));
  bind_constant(*graph, borrowed("gate", {5, 6}, ramp(30, -0.125f), gate));
  CompiledGraph first(graph->clone(), {.threads = 1});
  CompiledGraph second(std::move(graph), {.threads = 1});  // shares the constants, as long as there are any
  EXPECT_TRUE(up.expired());
  EXPECT_TRUE(gate.expired());
  std::vector<float> x = ramp(12, 0.5f);
  const std::vector<float> expected = values_of(gated()->run({{view_of(x, {2, 6})}})[0]);
  EXPECT_EQ(values_of(first.run({{view_of(x, {2, 6})}})[0]), expected);
  EXPECT_EQ(values_of(second.run({{view_of(x, {2, 6})}})[0]), expected);
  try {
    CompiledGraph again(second.graph().clone());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kFailedPrecondition);
    EXPECT_NE(std::string(error.what()).find("it was released once it was packed"), std::string::npos) << error.what();
  }
}

TEST(CompiledGraph, AGraphThatCannotBeCompiledKeepsItsWeights) {
  std::weak_ptr<const void> up;
  std::unique_ptr<Graph> graph = parse_graph(kGated);
  bind_constant(*graph, borrowed("up", {5, 6}, ramp(30, 0.25f), up));
  EXPECT_THROW(CompiledGraph(graph->clone()), Error);  // there is no gate
  EXPECT_FALSE(up.expired());
  bind_constant(*graph, Constant::from_f32("gate", {5, 6}, ramp(30, -0.125f)));
  std::vector<float> x = ramp(12, 0.5f);
  EXPECT_EQ(values_of(CompiledGraph(std::move(graph), {.threads = 1}).run({{view_of(x, {2, 6})}})[0]),
            values_of(gated()->run({{view_of(x, {2, 6})}})[0]));
}

TEST(CompiledGraph, HoldsFewPlans) {
  const auto compiled = gated();
  for (int64_t rows = 1; rows < 40; ++rows) {
    std::vector<float> x = ramp(rows * 6, 0.5f);
    compiled->run({{view_of(x, {rows, 6})}});
  }
  EXPECT_EQ(compiled->plans(), 16);
}

TEST(CompiledGraph, ResultsOutliveIt) {
  auto compiled = gated(2);
  std::vector<float> x = ramp(18, 0.5f);
  const std::vector<Tensor> first = compiled->run({{view_of(x, {3, 6})}});
  const std::vector<float> kept = values_of(first[0]);
  std::fill(x.begin(), x.end(), 0.0f);
  compiled->run({{view_of(x, {3, 6})}});
  compiled.reset();
  EXPECT_EQ(values_of(first[0]), kept);
}

TEST(CompiledGraph, SameBitsFromAnyThreadCountAndCaller) {
  std::vector<float> x = ramp(6 * 37, 0.5f);
  const std::vector<float> alone = values_of(gated(1)->run({{view_of(x, {37, 6})}})[0]);
  for (const int threads : {2, 3}) {
    const auto compiled = gated(threads);
    std::vector<std::vector<float>> results(4);
    std::vector<std::thread> callers;
    for (auto& result : results) {
      callers.emplace_back([&] { result = values_of(compiled->run({{view_of(x, {37, 6})}})[0]); });
    }
    for (std::thread& caller : callers) caller.join();
    for (const auto& result : results) EXPECT_EQ(result, alone);
  }
}

TEST(CompiledGraph, StridesOfEveryKind) {
  const auto compiled = gated();
  // Rows of every kind out of one buffer: [offset, row stride, column stride].
  const int64_t kinds[][3] = {{0, 9, 1}, {50, -6, 1}, {2, 0, 1}, {0, 1, 5}, {5, 6, -1}, {3, 0, 0}, {70, -7, -2}};
  std::vector<float> buffer = ramp(120, 0.5f);
  for (const auto& [offset, row, column] : kinds) {
    TensorView view = view_of(buffer, {4, 6});
    view.data += offset * 4;
    view.stride[0] = row;
    view.stride[1] = column;
    std::vector<float> dense;
    for (int64_t i = 0; i < 24; ++i) {
      dense.push_back(buffer[static_cast<size_t>(offset + i / 6 * row + i % 6 * column)]);
    }
    const std::vector<float> expected = values_of(compiled->run({{view_of(dense, {4, 6})}})[0]);
    EXPECT_EQ(values_of(compiled->run({{view}})[0]), expected) << offset << " " << row << " " << column;
  }
}

TEST(CompiledGraph, MisalignedInput) {
  const auto compiled = gated();
  std::vector<float> x = ramp(12, 0.5f);
  std::vector<std::byte> bytes(12 * 4 + 1);
  std::memcpy(bytes.data() + 1, x.data(), 48);
  const TensorView odd = TensorView::dense(bytes.data() + 1, DType::kF32, std::vector<int64_t>{2, 6});
  EXPECT_EQ(values_of(compiled->run({{odd}})[0]), values_of(compiled->run({{view_of(x, {2, 6})}})[0]));
}

TEST(CompiledGraph, ReshapedInputMayBeStrided) {
  CompiledGraph compiled(parse_graph(R"(
graph @fold(%x: f32[2, 3]) {
  %flat = reshape(%x) {shape=[6]} : f32[6]
  %y = relu(%flat) : f32[6]
  return %y
}
)"));
  std::vector<float> x = {1, 2, 3, 4, 5, 6};
  TensorView turned = view_of(x, {2, 3});
  turned.stride = {1, 2};
  EXPECT_EQ(values_of(compiled.run({{turned}})[0]), (std::vector<float>{1, 3, 5, 2, 4, 6}));
}

TEST(CompiledGraph, ReturnsInputsViewsAndValuesTwice) {
  CompiledGraph compiled(parse_graph(R"(
graph @views(%x: f32[2, 3]) {
  const @c : f32[2] = [1.5, 2.5]
  %t = transpose(%x) {perm=[1, 0]} : f32[3, 2]
  %y = relu(%x) : f32[2, 3]
  %yt = transpose(%y) {perm=[1, 0]} : f32[3, 2]
  return %x, %t, %y, %y as again, %yt, @c
}
)"));
  std::vector<float> x = {1, -2, 3, 4, -5, 6};
  const std::vector<Tensor> out = compiled.run({{view_of(x, {2, 3})}});
  ASSERT_EQ(out.size(), 6u);
  EXPECT_EQ(values_of(out[0]), x);
  EXPECT_NE(out[0].data.get(), reinterpret_cast<std::byte*>(x.data()));
  EXPECT_EQ(values_of(out[1]), (std::vector<float>{1, 4, -2, -5, 3, 6}));
  EXPECT_EQ(values_of(out[2]), (std::vector<float>{1, 0, 3, 4, 0, 6}));
  EXPECT_EQ(values_of(out[3]), values_of(out[2]));
  EXPECT_NE(out[3].data, out[2].data);
  EXPECT_EQ(values_of(out[4]), (std::vector<float>{1, 4, 0, 0, 3, 6}));
  EXPECT_EQ(values_of(out[5]), (std::vector<float>{1.5, 2.5}));
}

TEST(CompiledGraph, NamesTheInputThatDoesNotFit) {
  CompiledGraph compiled(parse_graph(R"(
graph @sum(%x: f32[T, 2*T + 1], %y: f32[T, 1]) {
  symbols T in [1, 8]
  %z = add(%x, %y) : f32[T, 2*T + 1]
  return %z
}
)"));
  std::vector<float> data(1000);
  const auto view = [&](std::vector<int64_t> shape) { return view_of(data, std::move(shape)); };
  EXPECT_EQ(message_of(compiled, {view({2, 5}), view({2, 1})}), "no error");
  const auto expect = [&](std::vector<TensorView> inputs, const std::string& text) {
    const std::string message = message_of(compiled, std::move(inputs));
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  expect({view({2, 5})}, "1 inputs given, it takes 2");
  expect({view({2, 5}), view({2})}, "input y: is f32[2], expected f32[T, 1]; it has 1 axes, not 2");
  expect({view({2, 6}), view({2, 1})}, "input x: is f32[2, 6], expected f32[T, 2*T + 1]; axis 1 is 6, not 5");
  expect({view({2, 5}), view({3, 1})}, "axis 0 is 3, not 2; T is 2 by input x");
  expect({view({9, 19}), view({9, 1})}, "T would be 9, allowed are 1 to 8");
  expect({view({0, 1}), view({0, 1})}, "T would be 0, allowed are 1 to 8");
  TensorView wide = view({2, 5});
  wide.dtype = DType::kF64;
  expect({wide, view({2, 1})}, "input x: is f64[2, 5], expected f32[T, 2*T + 1]");
}

TEST(CompiledGraph, SolvesForSymbolsThroughExpressions) {
  const auto graph = parse_graph(R"(
graph @g(%x: f32[3*T + 2, S], %y: f32[T*S]) {
  symbols T in [0, 64], S in [0, 64]
  %z = relu(%x) : f32[3*T + 2, S]
  return %z
}
)");
  std::vector<float> data(1000);
  const Bindings bindings = bind_symbols(*graph, std::vector<TensorView>{view_of(data, {14, 5}), view_of(data, {20})});
  EXPECT_EQ(bindings, (Bindings{{"S", 5}, {"T", 4}}));
  const std::vector<TensorView> odd = {view_of(data, {13, 5}), view_of(data, {20})};
  EXPECT_THROW(bind_symbols(*graph, odd), Error);
}

TEST(CompiledGraph, RefusesWhatCannotRun) {
  const auto code_of = [](const char* text) {
    try {
      CompiledGraph compiled(parse_graph(text));
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kInternal;
  };
  EXPECT_EQ(code_of(kGated), Code::kFailedPrecondition);  // constants without data
  EXPECT_EQ(code_of("graph @s(%kv: state) {\n  return %kv\n}\n"), Code::kUnsupported);
  EXPECT_EQ(code_of(R"(
graph @f(%x: f32[floordiv(T, 2)]) {
  symbols T in [1, 8]
  %y = relu(%x) : f32[floordiv(T, 2)]
  return %y
}
)"),
            Code::kInvalidArgument);
  std::unique_ptr<Graph> graph = parse_graph(kGated);
  EXPECT_THROW(bind_constant(*graph, Constant::from_f32("down", {5, 6}, ramp(30, 1))), Error);
  EXPECT_THROW(bind_constant(*graph, Constant::from_f32("up", {6, 5}, ramp(30, 1))), Error);
}

TEST(CompiledGraph, ResultsStayWhileLaterCallsRunAndTheirMemoryServesAgain) {
  const auto compiled = gated();
  std::vector<float> x = ramp(24, 0.5f);
  std::vector<float> y = ramp(24, -1.5f);
  const std::vector<TensorView> first_input = {view_of(x, {4, 6})};
  const std::vector<TensorView> second_input = {view_of(y, {4, 6})};
  std::vector<Tensor> first = compiled->run(first_input);
  const std::vector<float> expected = values_of(first[0]);
  std::vector<Tensor> second = compiled->run(second_input);
  EXPECT_NE(first[0].data, second[0].data);
  EXPECT_EQ(values_of(first[0]), expected);
  const std::byte* memory = second[0].data.get();
  second.clear();
  const std::vector<Tensor> third = compiled->run(first_input);
  EXPECT_EQ(third[0].data.get(), memory);
  EXPECT_EQ(values_of(third[0]), expected);
}

}  // namespace
}  // namespace atb
