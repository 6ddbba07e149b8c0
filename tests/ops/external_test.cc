// SPDX-License-Identifier: Apache-2.0
// external: types from its body or as given, its decomposition, and each message.
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "ir/builder.h"
#include "ir/interpreter.h"
#include "ir/text.h"

namespace atb {
namespace {

constexpr const char* kBody =
    "graph @twice(%x: f32[T, 4], %y: f32[T, 4]) {\n"
    "  symbols T in [1, 64]\n"
    "  const @two : f32[] = 2.0\n"
    "  %sum = add(%x, %y) : f32[T, 4]\n"
    "  %out = mul(%sum, @two) : f32[T, 4]\n"
    "  return %out, %sum\n"
    "}\n";

struct Made {
  Graph graph{"g"};
  Value* x = graph.add_input("x", {DType::kF32, {Dim::symbol("T", 1, 64), 4}});
  Value* y = graph.add_input("y", {DType::kF32, {Dim::symbol("T", 1, 64), 4}});

  Node* external(Attrs attrs, std::vector<Value*> inputs = {}) {
    if (inputs.empty()) inputs = {x, y};
    attrs.set("target", std::string("my::op"));
    return Builder(graph).node("external", std::move(inputs), std::move(attrs));
  }

  std::string error(const Attrs& attrs, const std::vector<Value*>& inputs = {}) {
    try {
      external(attrs, inputs);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      return error.what();
    }
    return "no error";
  }
};

TEST(External, ABodyGivesTypesAndNumbers) {
  Made made;
  Node* node = made.external({{"body", std::string(kBody)}});
  ASSERT_EQ(node->outputs().size(), 2u);
  EXPECT_EQ(node->output(1)->type().str(), "f32[T, 4]");
  made.graph.set_outputs(node->outputs());
  const auto outputs = interpret<double>(made.graph, {{"x", {DType::kF32, {1, 4}, {1, 2, 3, 4}, {}, nullptr}},
                                                      {"y", {DType::kF32, {1, 4}, {5, 5, 5, 5}, {}, nullptr}}});
  EXPECT_EQ(outputs[0].f, (std::vector<double>{12, 14, 16, 18}));
  EXPECT_EQ(outputs[1].f, (std::vector<double>{6, 7, 8, 9}));
  const std::string text = print(made.graph);
  EXPECT_EQ(print(*parse_graph(text)), text);
}

TEST(External, ABodyTakesOtherShapesThanItDeclares) {
  Made made;
  Value* wide = made.graph.add_input("wide", {DType::kF32, {2, Dim::symbol("T", 1, 64), 4}});
  const Node* node = made.external({{"body", std::string(kBody)}}, {wide, wide});
  EXPECT_EQ(node->output()->type().str(), "f32[2, T, 4]");
}

TEST(External, WithoutABodyTypesSayWhatItGives) {
  Made made;
  const Node* node = made.external({{"types", std::string("bf16[T, 4], i64[2*T]")}});
  ASSERT_EQ(node->outputs().size(), 2u);
  EXPECT_EQ(node->output(0)->type().dtype, DType::kBF16);
  EXPECT_EQ(node->output(1)->type().str(), "i64[2*T]");
  EXPECT_EQ(node->output(1)->dim(0).upper(), 128);  // the range of the input's symbol
}

TEST(External, MessagesSayWhatIsWrong) {
  Made made;
  EXPECT_NE(made.error({}).find("it needs a body with outputs, or types"), std::string::npos);
  EXPECT_NE(made.error({{"types", std::string("f33[4]")}}).find("no dtype"), std::string::npos);
  EXPECT_NE(made.error({{"types", std::string("state")}}).find("dense arrays"), std::string::npos);
  EXPECT_NE(made.error({{"body", std::string("graph @x")}}).find("[graph text]"), std::string::npos);
  EXPECT_NE(made.error({{"body", std::string(kBody)}}, {made.x}).find("has 1 inputs, its body 2"), std::string::npos);
  Value* half = made.graph.add_input("half", {DType::kF16, {Dim::symbol("T", 1, 64), 4}});
  EXPECT_NE(made.error({{"body", std::string(kBody)}}, {half, made.y}).find("is f16[T, 4], its body takes f32[T, 4]"),
            std::string::npos);
  EXPECT_NE(made.error({{"body", std::string(kBody)}}, {nullptr, made.y}).find("is missing"), std::string::npos);
}

TEST(External, BodiesInsideBodiesHaveALimit) {
  std::string body = "graph @g(%x: f32[4]) {\n  return %x\n}\n";
  Graph graph("g");
  Value* x = graph.add_input("x", {DType::kF32, {4}});
  for (int level = 0; level < 4; ++level) {
    Graph inner("g");
    Builder builder(inner);
    inner.set_outputs({builder("external", {inner.add_input("x", {DType::kF32, {4}})},
                               {{"target", std::string("f")}, {"body", body}})});
    body = print(inner);
  }
  Builder b(graph);
  const Attrs attrs{{"target", std::string("f")}, {"body", body}};
  EXPECT_THROW(b("external", {x}, attrs), Error);
}

}  // namespace
}  // namespace atb
