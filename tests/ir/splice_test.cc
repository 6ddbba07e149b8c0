// SPDX-License-Identifier: Apache-2.0
// A graph over symbols of its own inside another one: extents, constants, scopes, and what is refused.
#include "ir/splice.h"

#include <gtest/gtest.h>

#include <array>

#include "core/error.h"
#include "ir/text.h"
#include "ir/verifier.h"

namespace atb {
namespace {

constexpr const char* kBody = R"(
graph @body(%x: f32[B, T, 4], %mask: f32[T]) {
  symbols B in [1, 64], T in [1, 8192]
  const @proj.weight : f32[6, 4]
  const @half : f32[] = 0.5
  %y = linear(%x, @proj.weight) {scope="proj"} : f32[B, T, 6]
  %z = mul(%y, @half) : f32[B, T, 6]
  %flat = reshape(%z) {shape=[B*T, 6]} : f32[B*T, 6]
  return %flat
}
)";

class Splice : public testing::Test {
 protected:
  Splice() : body(parse_graph(kBody)) {
    const Dim rows = Dim::symbol("N", 1, 100), time = Dim::symbol("T", 1, 100);
    x = graph.add_input("x", {DType::kF32, {rows, time + 1, 4}, nullptr});
    mask = graph.add_input("mask", {DType::kF32, {time + 1}, nullptr});
    weight = graph.add_constant(Constant::from_f32("layers.0.proj.weight", {6, 4}, std::vector<float>(24, 1.0f)));
  }

  std::vector<Value*> splice(Value* first, Value* second) {
    return splice_graph(graph, *body, std::array<Value*, 2>{first, second}, {{"proj.weight", weight}}, 3, "layers.3");
  }

  std::string message_of(Value* first, Value* second) {
    try {
      splice(first, second);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::unique_ptr<Graph> body;
  Graph graph;
  Value* x;
  Value* mask;
  Value* weight;
};

TEST_F(Splice, ExtentsConstantsLayersAndScopesAreThoseOfTheCaller) {
  const std::vector<Value*> outputs = splice(x, mask);
  graph.set_outputs(outputs);
  verify(graph, "splice");
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(to_string(outputs[0]->shape()), to_string({x->dim(0) * x->dim(1), 6}));
  const Node* linear = graph.nodes()[0];
  EXPECT_EQ(linear->input(1), weight);
  EXPECT_EQ(linear->scope(), "layers.3.proj");
  EXPECT_EQ(graph.nodes()[1]->scope(), "layers.3");
  for (const Node* node : graph.nodes()) EXPECT_EQ(node->layer(), 3);
}

TEST_F(Splice, TypesOfOperatorsFromOutsideAreInTheCallersExtents) {
  const std::unique_ptr<Graph> outside = parse_graph(R"(
graph @outside(%x: f32[B, T, 4]) {
  symbols B in [1, 64], T in [1, 8192]
  %y = external(%x) {target="mine", types="f32[B, 2*T]"} : f32[B, 2*T]
  return %y
}
)");
  Value* y = splice_graph(graph, *outside, std::array<Value*, 1>{x}, {}, -1, "")[0];
  EXPECT_EQ(to_string(y->shape()), to_string({x->dim(0), x->dim(1) * 2}));
}

TEST_F(Splice, TwiceIsTwice) {
  Value* first = splice(x, mask)[0];
  Value* second = splice(x, mask)[0];
  graph.set_outputs({first, second});
  verify(graph, "splice");
  EXPECT_NE(first, second);
  EXPECT_EQ(graph.nodes().size(), 6u);
}

TEST_F(Splice, WhatDoesNotFitIsNamed) {
  Value* narrow = graph.add_input("narrow", {DType::kF32, {x->dim(0), x->dim(1), 5}, nullptr});
  Value* flat = graph.add_input("flat", {DType::kF32, {x->dim(0), 4}, nullptr});
  Value* half = graph.add_input("half", {DType::kF16, x->shape(), nullptr});
  Value* shorter = graph.add_input("shorter", {DType::kF32, {Dim::symbol("T", 1, 100)}, nullptr});
  for (Value* wrong : {narrow, flat, half}) {
    EXPECT_NE(message_of(wrong, mask).find("x: is "), std::string::npos) << wrong->name();
  }
  EXPECT_NE(message_of(x, shorter).find("mask: is "), std::string::npos);
  weight = graph.add_constant(Constant::from_f32("wide", {6, 5}, std::vector<float>(30, 1.0f)));
  EXPECT_NE(message_of(x, mask).find("proj.weight: is f32[6, 5], expected f32[6, 4]"), std::string::npos);
  EXPECT_THROW(splice_graph(graph, *body, std::array<Value*, 1>{x}, {}, 0, ""), Error);
}

}  // namespace
}  // namespace atb
