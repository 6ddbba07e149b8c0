// SPDX-License-Identifier: Apache-2.0
// Halves computed in f32: types, casts and weights of the wide graph; numbers no further from exact than the rounded
// ones.
#include "passes/widen_floats.h"

#include "canonical_testing.h"

namespace atb {
namespace {

using test::count;
using test::find;
using test::ops;
using test::parsed;

// A gated feed-forward with its norm and residual as a bf16 module is exported.
const char* const kBody = R"(
  const @embed : bf16[20, 8]
  const @norm : bf16[8]
  const @gate : bf16[16, 8]
  const @up : bf16[16, 8]
  const @down : bf16[8, 16]
  const @eps : f32[] = 1e-06
  %x = embedding(%ids, @embed) : bf16[B, T, 8]
  %f = cast(%x) {dtype="f32"} : f32[B, T, 8]
  %square = mul(%f, %f) : f32[B, T, 8]
  %mean = mean(%square) {axes=[-1], keep=true} : f32[B, T, 1]
  %sum = add(%mean, @eps) : f32[B, T, 1]
  %root = rsqrt(%sum) : f32[B, T, 1]
  %n = mul(%f, %root) : f32[B, T, 8]
  %h = cast(%n) {dtype="bf16"} : bf16[B, T, 8]
  %normed = mul(@norm, %h) : bf16[B, T, 8]
  %g = linear(%normed, @gate) : bf16[B, T, 16]
  %a = silu(%g) : bf16[B, T, 16]
  %u = linear(%normed, @up) : bf16[B, T, 16]
  %p = mul(%a, %u) : bf16[B, T, 16]
  %d = linear(%p, @down) : bf16[B, T, 8]
  %y = add(%x, %d) : bf16[B, T, 8]
  return %y)";

// References keep halves unrounded, so that a graph rounds only where it casts: this one rounds after each operator.
std::unique_ptr<Graph> rounded(const Graph& graph) {
  auto copy = graph.clone();
  for (Node* node : std::vector<Node*>(copy->nodes())) {
    if (node->output()->type().dtype != DType::kBF16 || node->is("cast")) continue;
    std::vector<Node*> readers;
    const std::vector<Use> uses = node->output()->uses();
    Node* next = nullptr;
    const auto& order = copy->nodes();
    const size_t after = static_cast<size_t>(copy->position(node)) + 1;
    if (after < order.size()) next = order[after];
    Value* cast = Builder(*copy, next)("cast", {node->output()}, {{"dtype", std::string("bf16")}});
    for (const Use& use : uses) copy->set_input(use.node, static_cast<size_t>(use.index), cast);
    std::vector<Value*> outputs = copy->outputs();
    std::replace(outputs.begin(), outputs.end(), node->output(), cast);
    copy->set_outputs(outputs, copy->output_names());
  }
  verify(*copy, "rounded");
  return copy;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

TEST(WidenFloats, NumbersAreCloserToExactOnes) {
  const auto graph = parsed("%ids: i32[B, T]", kBody);
  auto wide = graph->clone();
  EXPECT_GT(widen_floats(*wide), 0);
  verify(*wide, "widen_floats");
  const auto inputs = test::random_inputs(*graph, {{"B", 3}, {"T", 33}});
  auto exact_graph = graph->clone();
  // Without a rounding anywhere: the weights are the halves, casts are to f32 alone.
  for (Node* node : std::vector<Node*>(exact_graph->nodes())) {
    if (node->is("cast")) exact_graph->set_attr(node, "dtype", std::string("f32"));
    exact_graph->reinfer(node);
  }
  const auto exact = interpret<double>(*exact_graph, inputs)[0].f;
  const double wide_distance = distance(interpret<double>(*wide, inputs)[0].f, exact);
  const double rounded_distance = distance(interpret<double>(*rounded(*graph), inputs)[0].f, exact);
  EXPECT_LT(wide_distance, 0.8 * rounded_distance);
  EXPECT_GT(wide_distance, 0) << "the result is rounded to what the graph said";
}

TEST(WidenFloats, OnlyTheResultIsHalf) {
  auto graph = parsed("%ids: i32[B, T]", kBody);
  widen_floats(*graph);
  EXPECT_EQ(graph->outputs()[0]->type().dtype, DType::kBF16);
  EXPECT_EQ(graph->output_names()[0], "y");
  for (const Node* node : graph->nodes()) {
    const DType expected = node->output() == graph->outputs()[0] ? DType::kBF16 : DType::kF32;
    EXPECT_EQ(node->output()->type().dtype, expected) << node->name();
  }
  EXPECT_EQ(find(*graph, "g")->input(1)->type().dtype, DType::kBF16) << "weights stay as they are stored";
  EXPECT_EQ(find(*graph, "x")->input(1)->type().encoding, find_encoding("bf16"));
  EXPECT_EQ(find(*graph, "x")->input(1)->constant()->segments()[0].storage->bytes.size(), 20u * 8 * 2) << "not copied";
  eliminate_common_subexpressions(*graph);
  canonicalize(*graph);
  eliminate_dead_code(*graph);
  EXPECT_EQ(ops(*graph), "embedding rms_norm linear silu linear mul linear add cast");
  test::apply(*graph, "GateUp");
  EXPECT_EQ(ops(*graph), "embedding rms_norm fused_gate_up linear add cast");
}

TEST(WidenFloats, InputsAreCastOnceAndOutputsAreWhatTheGraphSaid) {
  auto graph = parsed("%k: bf16[B, T, 4], %m: f32[T]", R"(
  const @scale : f32[] = 0.5100697
  %s = mul(%k, @scale) : bf16[B, T, 4]
  %r = relu(%k) : bf16[B, T, 4]
  %y = add(%s, %r) : bf16[B, T, 4]
  return %y, %k, %s)");
  widen_floats(*graph);
  verify(*graph, "widen_floats");
  EXPECT_EQ(ops(*graph), "cast mul relu add cast cast");
  EXPECT_EQ(graph->outputs()[1], graph->inputs()[0]) << "an input that is returned is itself";
}

TEST(WidenFloats, DiscreteDecisionsAreRoundedAsTheGraphSaid) {
  const auto graph = parsed("%x: bf16[T], %z: bf16[T]", R"(
  %s = mul(%x, %z) : bf16[T]
  %b = less_equal(%s, %x) : bool[T]
  %i = cast(%s) {dtype="i32"} : i32[T]
  return %b, %i)");
  auto wide = graph->clone();
  widen_floats(*wide);
  verify(*wide, "widen_floats");
  const auto inputs = test::random_inputs(*graph, {{"T", 500}});
  const auto expected = interpret<double>(*rounded(*graph), inputs);
  const auto actual = interpret<double>(*wide, inputs);
  EXPECT_EQ(actual[0].i, expected[0].i);
  EXPECT_EQ(actual[1].i, expected[1].i);
}

TEST(WidenFloats, ProductsWithTransposedHalvesAreLinears) {
  auto graph = parsed("%x: f16[B, T, 4]", R"(
  const @w : f16[6, 4]
  const @b : f16[6]
  %t = transpose(@w) {perm=[1, 0]} : f16[4, 6]
  %m = matmul(%x, %t) : f16[B, T, 6]
  %y = add(%m, @b) : f16[B, T, 6]
  return %y)");
  widen_floats(*graph);
  canonicalize(*graph);
  eliminate_dead_code(*graph);
  ASSERT_EQ(ops(*graph), "cast linear cast");
  EXPECT_EQ(graph->nodes()[1]->input(1)->name(), "w");
  EXPECT_EQ(graph->nodes()[1]->input(1)->type().dtype, DType::kF16);
}

TEST(WidenFloats, GraphsWithoutHalfActivationsStay) {
  auto graph = parsed("%x: f32[B, T, 4]", R"(
  const @w : bf16[6, 4]
  %y = linear(%x, @w) : f32[B, T, 6]
  return %y)");
  const Value* x = graph->inputs()[0];
  EXPECT_EQ(widen_floats(*graph), 0);
  EXPECT_EQ(graph->inputs()[0], x);
}

}  // namespace
}  // namespace atb
