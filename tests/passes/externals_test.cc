// SPDX-License-Identifier: Apache-2.0
// Sets of nodes as one external node and back: text, equal numbers, and each reason for a refusal.
#include "passes/externals.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "ir/interpreter.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "passes/cse.h"
#include "passes/fold_constants.h"
#include "passes/pipeline.h"

namespace atb {
namespace {

constexpr const char* kGraph = R"(graph @g(%x: f32[T, 4], %z: f32[T, 4]) {
  symbols T in [1, 64]
  const @w : f32[4] = [1.0, 2.0, 3.0, 4.0]
  const @half : f32[] = 0.5
  %a = silu(%x) {layer=3, scope="net.act"} : f32[T, 4]
  %b = mul(%a, @w) {layer=3} : f32[T, 4]
  %c = add(%b, %z) {layer=3} : f32[T, 4]
  %d = mul(%c, @half) : f32[T, 4]
  %e = relu(%b) : f32[T, 4]
  return %d, %e
}
)";

class Externals : public ::testing::Test {
 protected:
  Node* node(const std::string& name) const {
    for (Node* node : graph_->nodes()) {
      if (node->name() == name) return node;
    }
    return nullptr;
  }
  std::vector<Node*> nodes(const std::vector<std::string>& names) const {
    std::vector<Node*> found;
    for (const std::string& name : names) found.push_back(node(name));
    return found;
  }
  // The reason, after a check that the graph is as it was.
  std::string refused(const std::vector<std::string>& names, const ExternalSpec& spec) {
    const auto reason = fuse_external(*graph_, nodes(names), spec);
    EXPECT_EQ(print(*graph_), kGraph);
    return reason.value_or("done");
  }
  static std::vector<RefTensor<double>> run(const Graph& graph) {
    return interpret<double>(graph, {{"x", {DType::kF32, {1, 4}, {-1, 2, -3, 4}, {}, nullptr}},
                                     {"z", {DType::kF32, {1, 4}, {5, 6, 7, 8}, {}, nullptr}}});
  }

  std::unique_ptr<Graph> graph_ = parse_graph(kGraph);
};

TEST_F(Externals, NodesBecomeTheDefinition) {
  const auto before = run(*graph_);
  Node* made = nullptr;
  ASSERT_EQ(fuse_external(*graph_, nodes({"d", "a", "c", "b", "c"}), {"mine", "", {}, {}}, &made), std::nullopt);
  verify(*graph_, "fuse_external");
  EXPECT_EQ(print(*made).substr(0, print(*made).find("body=")),
            "%b, %d = external(%x, @w, %z) {layer=3, scope=\"net.act\", ");
  EXPECT_EQ(made->attrs().text("body"), R"(graph @mine(%x: f32[T, 4], %w: f32[4], %z: f32[T, 4]) {
  symbols T in [1, 64]
  const @half : f32[] = 0.5
  %a = silu(%x) {layer=3, scope="net.act"} : f32[T, 4]
  %b = mul(%a, %w) {layer=3} : f32[T, 4]
  %c = add(%b, %z) {layer=3} : f32[T, 4]
  %d = mul(%c, @half) : f32[T, 4]
  return %b, %d
}
)");
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(run(*graph_)[i].f, before[i].f);
  EXPECT_EQ(expand_externals(*graph_), 1);
  // Results keep their names; what has no layer or scope in the definition takes the node's.
  EXPECT_EQ(print(*graph_), R"(graph @g(%x: f32[T, 4], %z: f32[T, 4]) {
  symbols T in [1, 64]
  const @w : f32[4] = [1.0, 2.0, 3.0, 4.0]
  const @half_1 : f32[] = 0.5
  %silu = silu(%x) {layer=3, scope="net.act"} : f32[T, 4]
  %b = mul(%silu, @w) {layer=3, scope="net.act"} : f32[T, 4]
  %add = add(%b, %z) {layer=3, scope="net.act"} : f32[T, 4]
  %d = mul(%add, @half_1) {layer=3, scope="net.act"} : f32[T, 4]
  %e = relu(%b) : f32[T, 4]
  return %d, %e
}
)");
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(run(*graph_)[i].f, before[i].f);
}

TEST_F(Externals, ADefinitionIsPlainHoweverOftenNodesAreTakenTogether) {
  Node* made = nullptr;
  ASSERT_EQ(fuse_external(*graph_, nodes({"a", "b"}), {"inner", "python:f", {}, {}}, &made), std::nullopt);
  ASSERT_EQ(fuse_external(*graph_, {made, node("c")}, {"outer", "python:g", {}, {}}, &made), std::nullopt);
  EXPECT_EQ(made->attrs().text("body").find("external"), std::string::npos);
}

TEST_F(Externals, RefusalsSayWhy) {
  Value* c = node("c")->output();
  EXPECT_EQ(refused({"a", "b", "c"}, {"mine", "", {}, {c}}), "%b is read by e, outside the match, but is no output");
  EXPECT_EQ(refused({"c", "d"}, {"mine", "", {}, {c}}),
            "%d is returned by the graph, outside the match, but is no output");
  EXPECT_EQ(refused({"a", "b"}, {"mine", "", {graph_->inputs()[0]}, {}}), "%w is read, but is no input");
  EXPECT_NE(refused({"a", "c"}, {"mine", "", {}, {}}).find("would depend on itself"), std::string::npos);
  EXPECT_THROW(fuse_external(*graph_, {}, {"mine", "", {}, {}}), Error);
}

TEST_F(Externals, OtherOperatorsTakeThePlace) {
  const auto relu_of_x = [&](Rewriter& rewriter) {
    return std::vector<Value*>{rewriter.value("relu", {graph_->inputs()[0]})};
  };
  EXPECT_EQ(replace_nodes(*graph_, nodes({"a"}), {node("a")->output()}, relu_of_x), std::nullopt);
  EXPECT_EQ(print(*node("a")), "%a = relu(%x) {layer=3, scope=\"net.act\"} : f32[T, 4]");
  const auto of_another_shape = [&](Rewriter& rewriter) {
    return std::vector<Value*>{
        rewriter.value("transpose", {graph_->inputs()[0]}, {{"perm", std::vector<int64_t>{1, 0}}})};
  };
  const std::string before = print(*graph_);
  EXPECT_EQ(replace_nodes(*graph_, nodes({"a"}), {node("a")->output()}, of_another_shape),
            "replacing %a : f32[T, 4] by f32[4, T]");
  const auto of_a_wrong_call = [&](Rewriter& rewriter) {
    return std::vector<Value*>{rewriter.value("add", {graph_->inputs()[0]})};
  };
  EXPECT_NE(replace_nodes(*graph_, nodes({"a"}), {node("a")->output()}, of_a_wrong_call)->find("[add]"),
            std::string::npos);
  EXPECT_EQ(print(*graph_), before);
}

TEST_F(Externals, WithAKernelTheyStayAndNoPassTakesThemTogether) {
  const std::string kernel = "{target=\"draw\", types=\"f32[4]\", kernel=\"python:draw\"} : f32[4]";
  const auto graph =
      parse_graph("graph @g() {\n  const @w : f32[4] = [1.0, 2.0, 3.0, 4.0]\n  %a = external(@w) " + kernel +
                  "\n  %b = external(@w) " + kernel + "\n  %c = add(%a, %b) : f32[4]\n" + "  return %c\n}");
  EXPECT_EQ(fold_constants(*graph), 0);
  EXPECT_EQ(eliminate_common_subexpressions(*graph), 0);
  EXPECT_EQ(expand_externals(*graph), 0);
  optimize(*graph, {.cache = false, .verify = true});
  EXPECT_EQ(graph->nodes().size(), 3u);
}

}  // namespace
}  // namespace atb
