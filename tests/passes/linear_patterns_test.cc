// SPDX-License-Identifier: Apache-2.0
// What is folded into a product: the norm before it, the activation and the residual behind it. Each fires with equal
// numbers, on near misses does not, with the reason; and together they leave to AddNorm and GateUp what is theirs.
#include "graph_testing.h"
#include "ir/text.h"
#include "passes/dce.h"

namespace atb {
namespace {

using test::apply;
using test::count;
using test::find;

// A graph of nodes on x [B, T, 6] with the constants that they name: @w [6, 6], @b [6], @n [6], @up [10, 6], @down
// [6, 10], @bias [10].
std::unique_ptr<Graph> graph_of(const std::string& nodes, const std::string& outputs,
                                const std::string& more_inputs = "") {
  auto graph = parse_graph("graph @test(%x: f32[B, T, 6]" + more_inputs + R"() {
  const @w : f32[6, 6]
  const @b : f32[6]
  const @n : f32[6]
  const @up : f32[10, 6]
  const @down : f32[6, 10]
  const @bias : f32[10]
)" + nodes + "  return " + outputs +
                           "\n}\n");
  test::fill_constants(*graph);
  eliminate_dead_code(*graph);
  return graph;
}

// Applies a fusion that must match once; equal numbers.
std::unique_ptr<Graph> fused(std::unique_ptr<Graph> graph, std::string_view pattern) {
  const auto before = graph->clone();
  EXPECT_EQ(apply(*graph, pattern).patterns[0].matches, 1) << print(*graph);
  test::expect_same_numbers(*before, *graph);
  return graph;
}

MatchReport apply_all(Graph& graph) {
  MatchReport report;
  for (const PatternGroup group : {PatternGroup::kFusion, PatternGroup::kFurther}) {
    apply_patterns(graph, PatternRegistry::instance().group(group), report);
  }
  verify(graph, "fusions");
  return report;
}

// All fusions, in their order; equal numbers. The operators that are left, views aside.
std::vector<std::string> ops_after_fusions(std::unique_ptr<Graph> graph) {
  const auto before = graph->clone();
  apply_all(*graph);
  test::expect_same_numbers(*before, *graph);
  std::vector<std::string> ops;
  for (const Node* node : graph->nodes()) {
    if (!node->op().is_view()) ops.push_back(node->op_name());
  }
  return ops;
}

// Rare patterns report few misses: this asks for the reason at a node.
std::string why_not(const Graph& graph, std::string_view pattern, std::string_view node) {
  const MatchResult result = match_pattern(*PatternRegistry::instance().find(pattern), find(graph, node));
  EXPECT_FALSE(result.match);
  const MatchFailure& failure = result.failure;
  return failure.node + ": " + failure.constraint + ", found " + failure.actual + ", needs " + failure.expected;
}

// --- NormLinear

TEST(NormLinear, FoldsEveryNormIntoEveryProduct) {
  const std::string norms[] = {"rms_norm(%x, @n) {eps=1e-05}", "layer_norm(%x, @n, @b) {eps=1e-05}",
                               "layer_norm(%x, @n) {eps=1e-05}", "layer_norm(%x) {eps=1e-05}"};
  for (const std::string& norm : norms) {
    for (const std::string bias : {"", ", @bias"}) {
      const auto linear = fused(graph_of("  %normed = " + norm + " : f32[B, T, 6]\n  %y = linear(%normed, @up" + bias +
                                             ") {layer=2} : f32[B, T, 10]\n",
                                         "%y"),
                                "NormLinear");
      ASSERT_EQ(linear->nodes().size(), 1u);
      EXPECT_TRUE(linear->nodes()[0]->is("fused_linear"));
      EXPECT_EQ(linear->nodes()[0]->layer(), 2);
      EXPECT_EQ(linear->nodes()[0]->attrs().text("norm"), norm[0] == 'r' ? "rms" : "layer");
      EXPECT_EQ(linear->nodes()[0]->attrs().real("eps"), 1e-5);
      EXPECT_EQ(linear->nodes()[0]->output()->name(), "y");
      const auto merged =
          fused(graph_of("  %normed = " + norm + " : f32[B, T, 6]\n  %y, %z = merged_matmul(%normed, @up" + bias +
                             ") {splits=[7, 3]} : f32[B, T, 7], f32[B, T, 3]\n",
                         "%y, %z"),
                "NormLinear");
      EXPECT_EQ(count(*merged, "fused_linear"), 1);
      EXPECT_EQ(merged->nodes().size(), 1u);
    }
  }
}

TEST(NormLinear, NeedsTheNormReadByOneProduct) {
  const std::string norm = "  %normed = rms_norm(%x, @n) {eps=1e-05} : f32[B, T, 6]\n";
  const std::string linear = "  %y = linear(%normed, @up) : f32[B, T, 10]\n";
  const auto twice = graph_of(norm + linear + "  %z = linear(%normed, @w) : f32[B, T, 6]\n", "%y, %z");
  EXPECT_EQ(why_not(*twice, "NormLinear", "y"),
            "normed: norm read only inside the pattern, found also read by z, needs no other reader");
  EXPECT_EQ(why_not(*graph_of(norm + linear, "%y, %normed"), "NormLinear", "y"),
            "normed: norm read only inside the pattern, found a graph output, needs no other reader");
  // The product adds what it reads.
  const auto added = graph_of(norm +
                                  "  %y = fused_linear(%normed, @w, _, _, _, %normed) {splits=[6]} : "
                                  "f32[B, T, 6]\n",
                              "%y");
  EXPECT_EQ(why_not(*added, "NormLinear", "y"),
            "y: a norm that the product reads as x, found its residual too, needs one that is x alone");
}

TEST(NormLinear, NeedsConstantsAndNoOtherNorm) {
  const std::string weight = ", %v: f32[6], %m: f32[10, 6]";
  const auto vector = graph_of(
      "  %normed = rms_norm(%x, %v) {eps=1e-05} : f32[B, T, 6]\n"
      "  %y = linear(%normed, @up) : f32[B, T, 10]\n",
      "%y", weight);
  EXPECT_EQ(why_not(*vector, "NormLinear", "y"), "normed: norm weight, found input %v, needs a constant");
  const auto matrix = graph_of(
      "  %normed = rms_norm(%x, @n) {eps=1e-05} : f32[B, T, 6]\n"
      "  %y = linear(%normed, %m) : f32[B, T, 10]\n",
      "%y", weight);
  EXPECT_EQ(why_not(*matrix, "NormLinear", "y"), "y: weight, found input %m, needs a constant");
  const auto two = graph_of(
      "  %first = rms_norm(%x, @n) {eps=1e-05} : f32[B, T, 6]\n"
      "  %second = layer_norm(%first, @n, @b) {eps=1e-05} : f32[B, T, 6]\n"
      "  %y = linear(%second, @up) : f32[B, T, 10]\n",
      "%y");
  const auto one = fused(two->clone(), "NormLinear");
  EXPECT_EQ(count(*one, "rms_norm"), 1);
  EXPECT_EQ(why_not(*one, "NormLinear", "y"), "y: a product without a norm, found norm \"layer\", needs none yet");
}

TEST(NormGateUp, FoldsTheNormOfAGatedProduct) {
  const auto graph =
      fused(graph_of("  %normed = layer_norm(%x, @n, @b) {eps=1e-05} : f32[B, T, 6]\n"
                     "  %y = fused_gate_up(%normed, @up, @bias) {activation=\"gelu_tanh\"} : f32[B, T, 5]\n",
                     "%y"),
            "NormGateUp");
  EXPECT_EQ(graph->nodes().size(), 1u);
  EXPECT_EQ(graph->nodes()[0]->attrs().text("activation"), "gelu_tanh");
  const auto twice = graph_of(
      "  %normed = layer_norm(%x, @n, @b) {eps=1e-05} : f32[B, T, 6]\n"
      "  %y = fused_gate_up(%normed, @up, @bias) {activation=\"silu\"} : f32[B, T, 5]\n",
      "%y, %normed");
  EXPECT_EQ(why_not(*twice, "NormGateUp", "y"),
            "normed: norm read only inside the pattern, found a graph output, needs no other reader");
}

// --- LinearActivation

TEST(LinearActivation, FoldsEveryActivation) {
  const std::pair<std::string, std::string> activations[] = {{"silu(%y) {layer=1}", "silu"},
                                                             {"relu(%y) {layer=1}", "relu"},
                                                             {"gelu(%y) {layer=1, approximate=\"none\"}", "gelu_none"},
                                                             {"gelu(%y) {layer=1, approximate=\"tanh\"}", "gelu_tanh"}};
  for (const auto& [call, name] : activations) {
    const auto graph =
        fused(graph_of("  %y = linear(%x, @up, @bias) : f32[B, T, 10]\n  %z = " + call + " : f32[B, T, 10]\n", "%z"),
              "LinearActivation");
    ASSERT_EQ(graph->nodes().size(), 1u);
    EXPECT_EQ(graph->nodes()[0]->attrs().text("activation"), name);
  }
}

TEST(LinearActivation, NeedsAProductThatIsReadOnceAndBare) {
  const std::string linear = "  %y = linear(%x, @up) : f32[B, T, 10]\n";
  const std::string silu = "  %z = silu(%y) : f32[B, T, 10]\n";
  EXPECT_EQ(why_not(*graph_of(linear + silu, "%z, %y"), "LinearActivation", "z"),
            "y: product read only inside the pattern, found a graph output, needs no other reader");
  const auto sum = graph_of(
      "  %y = fused_linear(%x, @w, _, _, _, %x) {splits=[6]} : f32[B, T, 6]\n"
      "  %z = silu(%y) : f32[B, T, 6]\n",
      "%z");
  EXPECT_EQ(why_not(*sum, "LinearActivation", "z"),
            "y: a product without a residual, found residual %x, needs none yet");
  const auto twice = graph_of(
      "  %y = fused_linear(%x, @w) {splits=[6], activation=\"relu\"} : f32[B, T, 6]\n"
      "  %z = silu(%y) : f32[B, T, 6]\n",
      "%z");
  EXPECT_EQ(why_not(*twice, "LinearActivation", "z"),
            "y: a product without an activation, found activation \"relu\", needs none yet");
  const auto split = graph_of(
      "  %y, %rest = fused_linear(%x, @w) {splits=[4, 2]} : f32[B, T, 4], f32[B, T, 2]\n"
      "  %z = silu(%y) : f32[B, T, 4]\n",
      "%z, %rest");
  EXPECT_EQ(why_not(*split, "LinearActivation", "z"), "y: one output, found 2 outputs, needs one");
}

// --- LinearResidual

TEST(LinearResidual, FoldsEitherOrderWhateverElseReadsTheSumAndTheResidual) {
  for (const std::string operands : {"%y, %x", "%x, %y"}) {
    const auto graph = fused(graph_of("  %y = linear(%x, @w, @b) : f32[B, T, 6]\n  %sum = add(" + operands +
                                          ") {layer=1} : f32[B, T, 6]\n  %z = exp(%x) : f32[B, T, 6]\n",
                                      "%sum, %z"),
                             "LinearResidual");
    const Node* node = find(*graph, "sum");
    EXPECT_TRUE(node->is("fused_linear"));
    EXPECT_EQ(node->input(5)->name(), "x");
    EXPECT_EQ(node->layer(), 1);
  }
}

TEST(LinearResidual, KeepsTheActivationInFrontOfTheSum) {
  const auto graph = fused(graph_of("  %y = fused_linear(%x, @w) {splits=[6], activation=\"relu\"} : f32[B, T, 6]\n"
                                    "  %sum = add(%y, %x) : f32[B, T, 6]\n",
                                    "%sum"),
                           "LinearResidual");
  EXPECT_EQ(graph->nodes().size(), 1u);
  EXPECT_EQ(graph->nodes()[0]->attrs().text("activation"), "relu");
}

TEST(LinearResidual, NeedsOneReaderAndOneType) {
  const std::string linear = "  %y = linear(%x, @w) : f32[B, T, 6]\n";
  const std::string inputs = ", %row: f32[6], %one: f32[1, T, 6], %half: f16[B, T, 6]";
  const auto with = [&](const std::string& operands, const std::string& outputs = "%sum") {
    return graph_of(linear + "  %sum = add(" + operands + ") : f32[B, T, 6]\n", outputs, inputs);
  };
  EXPECT_EQ(why_not(*with("%y, %x", "%sum, %y"), "LinearResidual", "sum"),
            "y: product read only inside the pattern, found a graph output, needs no other reader");
  EXPECT_EQ(why_not(*with("%y, %row"), "LinearResidual", "sum"),
            "sum: operands of one type, found f32[6], needs f32[B, T, 6] as the product");
  EXPECT_EQ(why_not(*with("%one, %y"), "LinearResidual", "sum"),
            "sum: operands of one type, found f32[1, T, 6], needs f32[B, T, 6] as the product");
  EXPECT_EQ(why_not(*with("%y, %half"), "LinearResidual", "sum"),
            "sum: operands of one type, found f16[B, T, 6], needs f32[B, T, 6] as the product");
  EXPECT_EQ(why_not(*with("%y, %y"), "LinearResidual", "sum"),
            "sum: a residual that is there before the product, found %y of another branch, needs a value that %x is "
            "computed from");
}

// Two branches run side by side; a sum in one of them would wait for the other.
TEST(LinearResidual, NeedsAResidualThatTheProductWaitsForAnyway) {
  const auto branches = graph_of(
      "  %a = exp(%x) : f32[B, T, 6]\n  %left = linear(%a, @w) : f32[B, T, 6]\n"
      "  %right = linear(%x, @w) : f32[B, T, 6]\n  %sum = add(%left, %right) : f32[B, T, 6]\n",
      "%sum");
  EXPECT_EQ(why_not(*branches, "LinearResidual", "sum"),
            "sum: a residual that is there before the product, found %right of another branch, needs a value that %a "
            "is computed from");
  // Computed on the way to the product, however far up.
  fused(graph_of("  %a = exp(%x) : f32[B, T, 6]\n  %n1 = rms_norm(%a, @n) {eps=1e-05} : f32[B, T, 6]\n"
                 "  %up = linear(%n1, @up) : f32[B, T, 10]\n  %act = silu(%up) : f32[B, T, 10]\n"
                 "  %y = linear(%act, @down) : f32[B, T, 6]\n  %sum = add(%a, %y) : f32[B, T, 6]\n",
                 "%sum"),
        "LinearResidual");
}

// --- together

TEST(FusedLinear, ABlockOfTwoProductsIsTwoKernels) {
  EXPECT_EQ(ops_after_fusions(graph_of("  %normed = layer_norm(%x, @n, @b) {eps=1e-05} : f32[B, T, 6]\n"
                                       "  %y = linear(%normed, @up, @bias) : f32[B, T, 10]\n"
                                       "  %act = silu(%y) : f32[B, T, 10]\n"
                                       "  %z = linear(%act, @down, @b) : f32[B, T, 6]\n"
                                       "  %sum = add(%z, %x) : f32[B, T, 6]\n",
                                       "%sum")),
            (std::vector<std::string>{"fused_linear", "fused_linear"}));
}

TEST(FusedLinear, ASumThatANormReadsGoesWithTheNorm) {
  EXPECT_EQ(ops_after_fusions(graph_of("  %y = linear(%x, @w) : f32[B, T, 6]\n  %sum = add(%x, %y) : f32[B, T, 6]\n"
                                       "  %normed = rms_norm(%sum, @n) {eps=1e-05} : f32[B, T, 6]\n"
                                       "  %z = linear(%normed, @up) : f32[B, T, 10]\n",
                                       "%z, %sum")),
            (std::vector<std::string>{"linear", "fused_add_norm", "linear"}));
}

TEST(FusedLinear, AGateGoesToGateUp) {
  const std::string gated =
      "  %normed = rms_norm(%x, @n) {eps=1e-05} : f32[B, T, 6]\n  %gate = linear(%normed, @up) : f32[B, T, 10]\n"
      "  %act = silu(%gate) : f32[B, T, 10]\n  %up = linear(%normed, @other) : f32[B, T, 10]\n"
      "  %product = mul(%act, %up) : f32[B, T, 10]\n  %y = linear(%product, @down) : f32[B, T, 6]\n"
      "  %sum = add(%y, %x) : f32[B, T, 6]\n";
  EXPECT_EQ(ops_after_fusions(graph_of("  const @other : f32[10, 6]\n" + gated, "%sum")),
            (std::vector<std::string>{"fused_gate_up", "fused_linear"}));
}

TEST(FusedLinear, ReportsNameThePatternsThatMatchedAndNoOthers) {
  auto graph = graph_of("  %y = linear(%x, @w) : f32[B, T, 6]\n  %sum = add(%x, %y) : f32[B, T, 6]\n", "%sum");
  const MatchReport report = apply_all(*graph);
  std::set<std::string> matched;
  for (const PatternResult& pattern : report.patterns) {
    if (pattern.matches > 0) matched.insert(pattern.name);
    EXPECT_NE(pattern.name, "NormLinear");
    EXPECT_NE(pattern.name, "LinearActivation");
  }
  EXPECT_EQ(matched, std::set<std::string>{"LinearResidual"});
}

}  // namespace
}  // namespace atb
