// SPDX-License-Identifier: Apache-2.0
// The interpreter on graphs small enough to work by hand, in f32 and f64.
#include "ir/interpreter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/text.h"

namespace atb {
namespace {

template <class T>
RefTensor<T> floats(std::vector<int64_t> shape, std::vector<T> values) {
  return {DType::kF32, std::move(shape), std::move(values), {}, nullptr};
}

template <class T>
RefTensor<T> ints(std::vector<int64_t> shape, std::vector<int64_t> values) {
  return {DType::kI32, std::move(shape), {}, std::move(values), nullptr};
}

template <class T>
class InterpreterTest : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(InterpreterTest, Reals);

// Causal attention of two tokens with K = V, worked by hand.
TYPED_TEST(InterpreterTest, CausalAttention) {
  using T = TypeParam;
  const std::unique_ptr<Graph> graph = parse_graph(R"(graph @attention(%q: f32[T, 1], %v: f32[T, 1]) {
  symbols T in [1, 8]
  const @zero : f32[] = 0.0
  const @masked : f32[] = -inf
  %pos = iota() {shape=[T]} : i32[T]
  %row = reshape(%pos) {shape=[1, T]} : i32[1, T]
  %col = reshape(%pos) {shape=[T, 1]} : i32[T, 1]
  %seen = less_equal(%row, %col) : bool[T, T]
  %mask = where(%seen, @zero, @masked) : f32[T, T]
  %scores = matmul(%q, %v) {transpose_b=true} : f32[T, T]
  %sum = add(%scores, %mask) : f32[T, T]
  %p = softmax(%sum) : f32[T, T]
  %out = matmul(%p, %v) : f32[T, 1]
  return %out, %p
})");
  // q v^T = [[0, ln 3], [0, ln 3]]: row 0 sees v[0] alone, row 1 weighs them 1 : 3.
  const T ln3 = std::log(T(3));
  const auto results = interpret<T>(*graph, {{"q", floats<T>({2, 1}, {1, 1})}, {"v", floats<T>({2, 1}, {0, ln3})}});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(results[1].f[0], T(1));
  EXPECT_EQ(results[1].f[1], T(0));
  EXPECT_NEAR(results[1].f[2], 0.25, 1e-7);
  EXPECT_NEAR(results[1].f[3], 0.75, 1e-7);
  EXPECT_EQ(results[0].f[0], T(0));
  EXPECT_NEAR(results[0].f[1], 0.75 * ln3, 1e-6);
}

// A fused operator without a reference kernel runs as its decomposition.
TYPED_TEST(InterpreterTest, FusedOperatorsDecompose) {
  using T = TypeParam;
  const std::unique_ptr<Graph> graph = parse_graph(R"(graph @g(%r: f32[T, 2], %x: f32[T, 2]) {
  const @w : f32[2] = [2.0, -8.0]
  %n, %s = fused_add_norm(%r, %x, @w) {eps=3.5, kind="rms"} : f32[T, 2], f32[T, 2]
  return %n, %s
})");
  const auto results = interpret<T>(*graph, {{"r", floats<T>({1, 2}, {1, 1})}, {"x", floats<T>({1, 2}, {2, 3})}});
  EXPECT_EQ(results[0].f, (std::vector<T>{1.5, -8}));  // (3, 4) / sqrt(12.5 + 3.5) * w
  EXPECT_EQ(results[1].f, (std::vector<T>{3, 4}));
}

TYPED_TEST(InterpreterTest, ViewsBroadcastsAndIntegers) {
  using T = TypeParam;
  const std::unique_ptr<Graph> graph = parse_graph(R"(graph @g(%x: f32[2, 3], %n: i32[2]) {
  const @c : f32[2, 1] = [10.0, 20.0]
  const @k : i32[1] = [-3]
  %t = transpose(%x) {perm=[1, 0]} : f32[3, 2]
  %r = reshape(%t) {shape=[2, 3]} : f32[2, 3]
  %s = sub(%r, @c) : f32[2, 3]
  %d = div(%x, @c) : f32[2, 3]
  %i = mul(%n, @k) : i32[2]
  return %s, %d, %i, %x
})");
  const auto results =
      interpret<T>(*graph, {{"x", floats<T>({2, 3}, {1, 2, 3, 4, 5, 6})}, {"n", ints<T>({2}, {5, -7})}});
  EXPECT_EQ(results[0].f, (std::vector<T>{-9, -6, -8, -15, -17, -14}));
  EXPECT_EQ(results[1].f, (std::vector<T>{T(1) / 10, T(2) / 10, T(3) / 10, T(4) / 20, T(5) / 20, T(6) / 20}));
  EXPECT_EQ(results[2].i, (std::vector<int64_t>{-15, 21}));
  EXPECT_EQ(results[3].f, (std::vector<T>{1, 2, 3, 4, 5, 6}));
}

TYPED_TEST(InterpreterTest, EmbeddingAndGather) {
  using T = TypeParam;
  const std::unique_ptr<Graph> graph = parse_graph(R"(graph @g(%ids: i32[T], %rows: i32[L]) {
  symbols L in [0, 8], T in [1, 8]
  const @table : f32[3, 2] = [0.0, 1.0, 10.0, 11.0, 20.0, 21.0]
  %e = embedding(%ids, @table) : f32[T, 2]
  %g = gather_rows(%e, %rows) : f32[L, 2]
  return %g
})");
  const auto run = [&](std::vector<int64_t> ids, std::vector<int64_t> rows) {
    const auto t = static_cast<int64_t>(ids.size());
    const auto l = static_cast<int64_t>(rows.size());
    return interpret<T>(*graph, {{"ids", ints<T>({t}, ids)}, {"rows", ints<T>({l}, rows)}})[0];
  };
  EXPECT_EQ(run({2, 0, 1}, {2, 0}).f, (std::vector<T>{10, 11, 20, 21}));
  EXPECT_EQ(run({2}, {}).shape, (std::vector<int64_t>{0, 2}));
  EXPECT_THROW(run({3}, {0}), Error);
  EXPECT_THROW(run({-1}, {0}), Error);
  EXPECT_THROW(run({1}, {1}), Error);
}

std::string error_of(const Graph& graph, const std::map<std::string, RefTensor<float>>& inputs) {
  try {
    interpret<float>(graph, inputs);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
    return error.what();
  }
  return "";
}

TEST(Interpreter, ContradictionsNameInputActualAndExpected) {
  const std::unique_ptr<Graph> graph = parse_graph(R"(graph @g(%y: f32[2*T], %x: f32[T, 2]) {
  symbols T in [1, 4]
  return %x
})");
  const auto x = floats<float>({2, 2}, {1, 2, 3, 4});
  const auto y = floats<float>({4}, {1, 2, 3, 4});
  EXPECT_EQ(error_of(*graph, {{"x", x}, {"y", y}}), "");
  EXPECT_EQ(error_of(*graph, {{"x", x}}), "[interpreter] input y: is missing, expected f32[2*T]");
  EXPECT_EQ(error_of(*graph, {{"x", x}, {"y", floats<float>({5}, {1, 2, 3, 4, 5})}}),
            "[interpreter] input y: shape [5], expected [2*T] with 2*T = 4");
  EXPECT_EQ(error_of(*graph, {{"x", floats<float>({5, 2}, std::vector<float>(10))}, {"y", y}}),
            "[interpreter] input x: shape [5, 2]: T must lie in [1, 4]");
  EXPECT_EQ(error_of(*graph, {{"x", ints<float>({2, 2}, {1, 2, 3, 4})}, {"y", y}}),
            "[interpreter] input x: i32[2, 2], expected f32[T, 2]");
  EXPECT_EQ(error_of(*graph, {{"x", floats<float>({2, 2}, {1})}, {"y", y}}),
            "[interpreter] input x: 1 elements for shape [2, 2]");
  EXPECT_EQ(error_of(*graph, {{"x", x}, {"y", y}, {"z", y}}), "[interpreter] the graph has no input z");
}

TEST(Interpreter, AFullyMaskedRowIsZero) {
  const std::unique_ptr<Graph> graph =
      parse_graph("graph @g(%x: f32[2, 2]) {\n  %p = softmax(%x) : f32[2, 2]\n  return %p\n}");
  const float inf = std::numeric_limits<float>::infinity();
  const auto results = interpret<float>(*graph, {{"x", floats<float>({2, 2}, {-inf, -inf, 3, 3})}});
  EXPECT_EQ(results[0].f, (std::vector<float>{0, 0, 0.5f, 0.5f}));
}

// The state goes from call to call, and the caller's own stays as it was.
TEST(Interpreter, StateIsVersioned) {
  const std::unique_ptr<Graph> graph = parse_graph(R"(graph @g(%k: f32[T, 1, 2], %kv: state) {
  symbols T in [1, 8]
  %kv1 = kv_append(%k, %k, %kv) {slot=0} : state
  %o = flash_attention_kv(%k, %kv1) {slot=0, scale=0.0, kv_heads=1} : f32[T, 1, 2]
  return %o, %kv1
})");
  const auto first = interpret<float>(*graph, {{"k", floats<float>({1, 1, 2}, {2, 4})}});
  EXPECT_EQ(first[0].f, (std::vector<float>{2, 4}));
  const auto step = [&] {
    return interpret<float>(*graph, {{"k", floats<float>({1, 1, 2}, {4, 8})}, {"kv", first[1]}}, {{0, 0, 1, 1}});
  };
  EXPECT_EQ(step()[0].f, (std::vector<float>{3, 6}));  // scale 0: the mean
  EXPECT_EQ(step()[0].f, (std::vector<float>{3, 6}));
}

}  // namespace
}  // namespace atb
