// SPDX-License-Identifier: Apache-2.0
// Each fusion: fires on every spelling with equal numbers, and on near misses does not, with the right reason.
#include <limits>

#include "graph_testing.h"
#include "ir/text.h"
#include "passes/canonical/canonical.h"
#include "passes/dce.h"

namespace atb {
namespace {

using test::apply;
using test::count;
using test::expect_fused;
using test::expect_miss;
using test::find;
using test::tiny_llama;
using test::TinyConfig;

TinyConfig one_layer() {
  TinyConfig config;
  config.layers = 1;
  return config;
}

// --- QKV+RoPE

TEST(QkvRope, FusesGroupedQueries) {
  auto graph = tiny_llama();
  const auto before = graph->clone();
  const MatchReport report = apply(*graph, "QKV+RoPE");
  EXPECT_EQ(report.patterns[0].layers, (std::set<int>{0, 1}));
  EXPECT_TRUE(report.misses.empty());
  EXPECT_EQ(count(*graph, "merged_matmul"), 2);
  EXPECT_EQ(count(*graph, "rotary_embedding"), 2);
  EXPECT_EQ(count(*graph, "rotary"), 0);
  const Node* merged = find(*graph, "l0.q");
  EXPECT_TRUE(merged->is("merged_matmul"));
  EXPECT_EQ(merged->output(2)->name(), "l0.v");
  EXPECT_EQ(merged->input(1)->name(), "l0.q_k_v.weight");
  test::expect_same_numbers(*before, *graph);
}

TEST(QkvRope, FusesEveryMixOfBiases) {
  for (int bits = 0; bits < 8; ++bits) {
    TinyConfig config = one_layer();
    config.q_bias = (bits & 1) != 0;
    config.k_bias = (bits & 2) != 0;
    config.v_bias = (bits & 4) != 0;
    expect_fused(tiny_llama(config), "QKV+RoPE", 1);
  }
}

// In canonical form the norm of a single head comes before the split, which then is a view of its result.
TEST(QkvRope, FusesTheNormOfASingleKeyHead) {
  TinyConfig config = one_layer();
  config.head_norm = true;
  config.kv_heads = 1;
  for (const bool layer_norm : {false, true}) {
    config.layer_norm = layer_norm;
    auto graph = tiny_llama(config);
    canonicalize(*graph);
    expect_fused(std::move(graph), "QKV+RoPE", 1);
  }
}

// A linear may read rows with an axis of one before the features; a lone head then needs no reshape.
TEST(QkvRope, FusesALoneKeyHeadThatIsNotReshaped) {
  auto graph = parse_graph(R"(graph @lone(%x: f32[2, T, 1, 8], %cos: f32[T, 2], %sin: f32[T, 2]) {
  symbols T in [1, 64]
  const @qw : f32[12, 8]
  const @kw : f32[4, 8]
  const @vw : f32[4, 8]
  %q = linear(%x, @qw) {layer=0} : f32[2, T, 1, 12]
  %heads = reshape(%q) {layer=0, shape=[2, T, 3, 4]} : f32[2, T, 3, 4]
  %q_rot = rotary(%heads, %cos, %sin) {layer=0} : f32[2, T, 3, 4]
  %k = linear(%x, @kw) {layer=0} : f32[2, T, 1, 4]
  %k_rot = rotary(%k, %cos, %sin) {layer=0} : f32[2, T, 1, 4]
  %v = linear(%x, @vw) {layer=0} : f32[2, T, 1, 4]
  return %q_rot as q, %k_rot as k, %v as v
}
)");
  test::fill_constants(*graph);
  expect_fused(std::move(graph), "QKV+RoPE", 1);
}

TEST(QkvRope, FusesPartialAndInterleavedRotaryHeadNormsAndPlainHeads) {
  TinyConfig config = one_layer();
  config.rotary_dim = 4;
  expect_fused(tiny_llama(config), "QKV+RoPE", 1);
  config.interleaved = true;
  expect_fused(tiny_llama(config), "QKV+RoPE", 1);
  config.head_norm = true;
  expect_fused(tiny_llama(config), "QKV+RoPE", 1);
  config.kv_heads = 4;
  expect_fused(tiny_llama(config), "QKV+RoPE", 1);
  config.kv_heads = 1;
  expect_fused(tiny_llama(config), "QKV+RoPE", 1);
}

TEST(QkvRope, KeepsValuesThatAreReadElsewhere) {
  auto graph = tiny_llama(one_layer());
  graph->set_outputs({graph->outputs()[0], find(*graph, "l0.q")->output(), find(*graph, "l0.k_rot")->output()});
  expect_fused(std::move(graph), "QKV+RoPE", 1);
}

TEST(QkvRope, NeedsOneX) {
  auto graph = tiny_llama(one_layer());
  graph->set_input(find(*graph, "l0.k"), 0, find(*graph, "embed")->output());
  expect_miss(*graph, "QKV+RoPE",
              "Pattern QKV+RoPE not matched at layer 0: l0.q: same x, found %l0.attn_norm, needs %embed");
}

TEST(QkvRope, NeedsV) {
  auto graph = tiny_llama(one_layer());
  graph->set_input(find(*graph, "l0.v"), 0, find(*graph, "embed")->output());
  expect_miss(
      *graph, "QKV+RoPE",
      "Pattern QKV+RoPE not matched at layer 0: l0.q_rot: v, found none that reads %l0.attn_norm, needs linear");
}

TEST(QkvRope, NeedsWeightsReadOnce) {
  auto graph = tiny_llama(one_layer());
  graph->set_input(find(*graph, "l0.v"), 1, find(*graph, "l0.k")->input(1));
  expect_miss(
      *graph, "QKV+RoPE",
      "Pattern QKV+RoPE not matched at layer 0: l0.k: weights not shared, found @l0.k.weight also read by l0.v, "
      "needs one reader");
}

TEST(QkvRope, NeedsWeightsOfOneType) {
  auto graph = tiny_llama(one_layer());
  Value* half = graph->add_constant(Constant::absent("half", DType::kF16, nullptr, {16, 24}));
  graph->set_input(find(*graph, "l0.v"), 1, half);
  expect_miss(*graph, "QKV+RoPE",
              "Pattern QKV+RoPE not matched at layer 0: l0.v: weights of one type, found @half f16[], needs f32[] as "
              "@l0.q.weight");
}

TEST(QkvRope, NeedsOneRotationLayout) {
  auto graph = tiny_llama(one_layer());
  graph->set_attr(find(*graph, "l0.k_rot"), "interleaved", true);
  expect_miss(*graph, "QKV+RoPE",
              "Pattern QKV+RoPE not matched at layer 0: l0.k_rot: one rotation layout, found interleaved, needs "
              "half-split");
}

// --- SDPA

TEST(Sdpa, FusesEverySpelling) {
  for (const char* scale : {"mul", "div", "none"}) {
    for (const char* mask : {"causal", "window", "none"}) {
      for (const bool swapped : {false, true}) {
        TinyConfig config = one_layer();
        config.scale = scale;
        config.mask = mask;
        config.swapped = swapped;
        config.head_dim = 16;  // whose scale, 1/4, and its reciprocal are exact
        auto graph = tiny_llama(config);
        const auto before = graph->clone();
        EXPECT_EQ(apply(*graph, "SDPA").patterns[0].matches, 1) << scale << " " << mask;
        test::expect_same_numbers(*before, *graph);
        const Node* fused = nullptr;
        for (const Node* node : graph->nodes()) fused = node->is("flash_attention") ? node : fused;
        ASSERT_NE(fused, nullptr);
        EXPECT_EQ(fused->input(3), nullptr);
        EXPECT_EQ(fused->attrs().flag("causal"), config.mask != "none");
        EXPECT_EQ(fused->attrs().integer("window"), config.mask == "window" ? 3 : 0);
        EXPECT_NEAR(fused->attrs().real("scale"), config.scale == "none" ? 1.0 : 0.25, 1e-7);
      }
    }
  }
}

TEST(Sdpa, FusesFlatHeadsAndSharedKeyHeads) {
  TinyConfig config = one_layer();
  config.flat_heads = true;
  config.kv_heads = 4;
  expect_fused(tiny_llama(config), "SDPA", 1);
  config.kv_heads = 1;
  expect_fused(tiny_llama(config), "SDPA", 1);
}

TEST(Sdpa, FusesFilledScoresInCanonicalForm) {
  TinyConfig config = one_layer();
  config.mask = "fill";
  auto graph = tiny_llama(config);
  const auto before = graph->clone();
  canonicalize(*graph);
  EXPECT_EQ(apply(*graph, "SDPA").patterns[0].matches, 1);
  test::expect_same_numbers(*before, *graph);
  for (const Node* node : graph->nodes()) {
    if (node->is("flash_attention")) {
      EXPECT_TRUE(node->attrs().flag("causal"));
    }
  }
}

TEST(Sdpa, ViewsCancelInCanonicalForm) {
  auto graph = tiny_llama(one_layer());
  const auto before = graph->clone();
  apply(*graph, "SDPA");
  canonicalize(*graph);
  eliminate_dead_code(*graph);
  EXPECT_EQ(count(*graph, "transpose"), 0);
  for (const Node* node : graph->nodes()) {
    if (!node->is("flash_attention")) continue;
    EXPECT_EQ(node->input(0)->name(), "l0.q_rot");
    EXPECT_EQ(node->input(1)->name(), "l0.k_rot");
  }
  test::expect_same_numbers(*before, *graph);
}

// An unknown mask stays an input, on its own axes, or merged over the heads, of which it may have some axes.
TEST(Sdpa, KeepsAnUnknownMask) {
  for (const Shape& shape :
       {Shape{Dim::symbol("T"), Dim::symbol("T")}, Shape{2, 2, Dim::symbol("T"), Dim::symbol("T")},
        Shape{2, 1, Dim::symbol("T"), Dim::symbol("T")}, Shape{1, 2, Dim::symbol("T"), Dim::symbol("T")},
        Shape{Dim::symbol("B"), 1, 2, Dim::symbol("T"), Dim::symbol("T")},
        Shape{Dim::symbol("B"), 1, 1, Dim::symbol("T"), Dim::symbol("T")}}) {
    auto graph = tiny_llama(one_layer());
    Value* mask = graph->add_input("given", {DType::kF32, shape, nullptr});
    graph->set_input(find(*graph, "l0.masked"), 1, mask);
    const auto before = graph->clone();
    ASSERT_EQ(apply(*graph, "SDPA").patterns[0].matches, 1) << to_string(shape);
    const Node* fused = nullptr;
    for (const Node* node : graph->nodes()) fused = node->is("flash_attention") ? node : fused;
    ASSERT_NE(fused->input(3), nullptr);
    EXPECT_FALSE(fused->attrs().flag("causal"));
    test::expect_same_numbers(*before, *graph);
  }
}

TEST(Sdpa, AddsTwoMasks) {
  auto graph = tiny_llama(one_layer());
  Node* masked = find(*graph, "l0.masked");
  Builder b(*graph, masked);
  const Dim t = Dim::symbol("T");
  Value* given = graph->add_input("given", {DType::kF32, {t, t}, nullptr});
  graph->set_input(masked, 0, b("add", {given, masked->input(0)}));
  expect_fused(graph->clone(), "SDPA", 1);
  graph->set_input(masked->input(0)->producer(), 0, find(*graph, "mask")->output());
  const auto before = graph->clone();
  EXPECT_EQ(apply(*graph, "SDPA").patterns[0].matches, 1);
  for (const Node* node : graph->nodes()) {
    if (!node->is("flash_attention")) continue;
    EXPECT_EQ(node->input(3), nullptr);
    EXPECT_TRUE(node->attrs().flag("causal"));
  }
  test::expect_same_numbers(*before, *graph);
}

// A mask of numbers is added beside causality, if what causality hides has exactly -inf.
TEST(Sdpa, CausalityStandsApartFromNumbersThatAreAdded) {
  for (const bool first : {false, true}) {
    for (const bool infinite : {true, false}) {
      auto graph = tiny_llama(one_layer());
      Node* masked = find(*graph, "l0.masked");
      Builder b(*graph, masked);
      const Dim t = Dim::symbol("T");
      Value* given = graph->add_input("given", {DType::kF32, {t, t}, nullptr});
      Node* causal = find(*graph, "mask");
      Value* hides = infinite ? causal->output() : b("where", {causal->input(0), causal->input(1), b.scalar(-3e38)});
      graph->set_input(masked, 1, first ? given : hides);
      graph->set_input(masked, 0, b("add", {masked->input(0), first ? hides : given}));
      const auto before = graph->clone();
      EXPECT_EQ(apply(*graph, "SDPA").patterns[0].matches, 1);
      const Node* fused = nullptr;
      for (const Node* node : graph->nodes()) fused = node->is("flash_attention") ? node : fused;
      EXPECT_EQ(fused->attrs().flag("causal"), infinite);
      EXPECT_EQ(fused->input(3) == graph->find_input("given"), infinite);
      test::expect_same_numbers(*before, *graph);
    }
  }
}

// A layer whose keys are of one packed sequence, causal, and (if `padded`) there, else `blocked`.
std::unique_ptr<Graph> packed(double blocked, bool padded, bool flat) {
  TinyConfig config = one_layer();
  config.flat_heads = flat;
  if (flat) config.kv_heads = config.heads;
  auto graph = tiny_llama(config);
  const Dim batch = Dim::symbol("B"), t = Dim::symbol("T");
  Node* masked = find(*graph, "l0.masked");
  Value* given = graph->add_input("given", {DType::kI32, {batch, t}, nullptr});
  Builder b(*graph, masked);
  const auto integer = [&](int32_t n) { return b.constant(Constant::from_i32("int", {}, std::span(&n, 1))); };
  Value* segments = b("floor_divide", {given, integer(5)}, {}, "segments");
  const auto view = [&](Value* x, const Dim& queries, const Dim& keys) {
    return b.reshape(x, flat ? Shape{batch, 1, queries, keys} : Shape{batch, 1, 1, queries, keys});
  };
  Value* visible = b("equal", {view(segments, t, 1), view(segments, 1, t)});
  visible = b("logical_and", {visible, find(*graph, "visible")->output()});
  if (padded) {
    Value* present = graph->add_input("present", {DType::kBool, {batch, t}, nullptr});
    visible = b("logical_and", {visible, view(present, 1, t)});
  }
  graph->set_input(masked, 1, b("where", {visible, b.scalar(0), b.scalar(blocked)}));
  return graph;
}

TEST(Sdpa, LeavesOnlyPackedSequencesToTheMask) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const bool flat : {false, true}) {
    for (const bool padded : {false, true}) {
      for (const double blocked : {-kInf, -3e38, -1e9, -1e4}) {
        auto graph = packed(blocked, padded, flat);
        const auto before = graph->clone();
        EXPECT_EQ(apply(*graph, "SDPA").patterns[0].matches, 1);
        const Node* fused = nullptr;
        for (const Node* node : graph->nodes()) fused = node->is("flash_attention") ? node : fused;
        ASSERT_NE(fused->input(3), nullptr);
        // A row of padding alone is the mean of all values where hidden keys are finite.
        EXPECT_EQ(fused->attrs().flag("causal"), !padded || blocked == -kInf);
        test::expect_same_numbers(*before, *graph);
      }
    }
  }
}

// [T, T] in the place of the axes of heads is no batch.
TEST(Sdpa, KeepsAPackedMaskOfFewerAxesThanTheScores) {
  TinyConfig config = one_layer();
  config.flat_heads = true;
  config.kv_heads = config.heads;
  for (const bool shared : {false, true}) {
    auto graph = tiny_llama(config);
    const Dim rows = shared ? Dim(1) : Dim(config.heads), t = Dim::symbol("T");
    Node* masked = find(*graph, "l0.masked");
    Value* segments = graph->add_input("segments", {DType::kI32, {rows, t}, nullptr});
    Builder b(*graph, masked);
    Value* visible = b("equal", {b.reshape(segments, {rows, t, 1}), b.reshape(segments, {rows, 1, t})});
    visible = b("logical_and", {visible, find(*graph, "visible")->output()});
    graph->set_input(masked, 1, b("where", {visible, find(*graph, "mask")->input(1), find(*graph, "mask")->input(2)}));
    const auto before = graph->clone();
    EXPECT_EQ(apply(*graph, "SDPA").patterns[0].matches, 1);
    for (const Node* node : graph->nodes()) {
      if (node->is("flash_attention")) {
        EXPECT_EQ(node->attrs().flag("causal"), shared);
      }
    }
    test::expect_same_numbers(*before, *graph);
  }
}

TEST(Sdpa, NeedsProbabilitiesReadOnce) {
  auto graph = tiny_llama(one_layer());
  graph->set_outputs({graph->outputs()[0], find(*graph, "l0.probs")->output()});
  expect_miss(*graph, "SDPA",
              "Pattern SDPA not matched at layer 0: l0.probs: softmax read only inside the pattern, found a graph "
              "output, needs no other reader");
}

TEST(Sdpa, NeedsScoresReadOnce) {
  auto graph = tiny_llama(one_layer());
  Builder b(*graph);
  Value* again = b("relu", {find(*graph, "l0.scaled")->output()}, {}, "again");
  graph->set_outputs({graph->outputs()[0], again});
  expect_miss(*graph, "SDPA",
              "Pattern SDPA not matched at layer 0: l0.scaled: scale by mul read only inside the pattern, found also "
              "read by again, needs no other reader");
}

TEST(Sdpa, NeedsAKnownScale) {
  auto graph = tiny_llama(one_layer());
  Value* scale = graph->add_constant(Constant::absent("scale", DType::kF32, nullptr, {}));
  graph->set_input(find(*graph, "l0.scaled"), 1, scale);
  expect_miss(
      *graph, "SDPA",
      "Pattern SDPA not matched at layer 0: l0.scaled: scale, found @scale without data, needs one known finite "
      "number");
}

TEST(Sdpa, NeedsAScalarScale) {
  auto graph = tiny_llama(one_layer());
  Value* scale = graph->add_input("scale", {DType::kF32, {}, nullptr});
  graph->set_input(find(*graph, "l0.scaled"), 1, scale);
  expect_miss(*graph, "SDPA",
              "Pattern SDPA not matched at layer 0: l0.scaled: scale, found input %scale, needs a constant");
}

TEST(Sdpa, NeedsOneFloatType) {
  auto graph = tiny_llama(one_layer());
  Value* v = graph->add_input("v", {DType::kF16, find(*graph, "l0.attn")->input(1)->shape(), nullptr});
  graph->set_input(find(*graph, "l0.attn"), 1, v);
  expect_miss(*graph, "SDPA",
              "Pattern SDPA not matched at layer 0: l0.scores: types of q, k and v, found v f16, needs f32 as q");
}

// --- GateUp

TEST(GateUp, FusesEveryActivationBiasAndOrder) {
  for (const char* activation : {"silu", "relu", "gelu_none", "gelu_tanh"}) {
    for (int bits = 0; bits < 8; ++bits) {
      TinyConfig config = one_layer();
      config.activation = activation;
      config.gate_bias = (bits & 1) != 0;
      config.up_bias = (bits & 2) != 0;
      config.swapped = (bits & 4) != 0;
      auto graph = tiny_llama(config);
      const auto before = graph->clone();
      EXPECT_EQ(apply(*graph, "GateUp").patterns[0].matches, 1);
      EXPECT_EQ(find(*graph, "l0.product")->attrs().text("activation"), activation);
      test::expect_same_numbers(*before, *graph);
    }
  }
}

TEST(GateUp, NeedsOneX) {
  auto graph = tiny_llama(one_layer());
  graph->set_input(find(*graph, "l0.up"), 0, find(*graph, "l0.attn_sum")->output());
  expect_miss(*graph, "GateUp",
              "Pattern GateUp not matched at layer 0: l0.up: same x, found %l0.attn_sum, needs %l0.ffn_norm");
}

TEST(GateUp, NeedsGateReadOnce) {
  auto graph = tiny_llama(one_layer());
  graph->set_outputs({graph->outputs()[0], find(*graph, "l0.gate")->output()});
  expect_miss(
      *graph, "GateUp",
      "Pattern GateUp not matched at layer 0: l0.gate: gate read only inside the pattern, found a graph output, "
      "needs no other reader");
}

TEST(GateUp, NeedsAnActivation) {
  auto graph = tiny_llama(one_layer());
  graph->set_input(find(*graph, "l0.product"), 0, find(*graph, "l0.gate")->output());
  expect_miss(*graph, "GateUp",
              "Pattern GateUp not matched at layer 0: l0.scaled: activation, found matmul, needs silu or gelu or relu");
}

TEST(GateUp, NeedsLinearWithConstantWeight) {
  auto graph = tiny_llama(one_layer());
  Value* w = graph->add_input("w", {DType::kF32, {40, 24}, nullptr});
  graph->set_input(find(*graph, "l0.up"), 1, w);
  expect_miss(*graph, "GateUp",
              "Pattern GateUp not matched at layer 0: l0.up: up weight, found input %w, needs a constant");
}

TEST(GateUp, NeedsWeightsReadOnce) {
  auto graph = tiny_llama(one_layer());
  graph->set_input(find(*graph, "l0.up"), 1, find(*graph, "l0.gate")->input(1));
  expect_miss(*graph, "GateUp",
              "Pattern GateUp not matched at layer 0: l0.gate: weights not shared, found @l0.gate.weight also read by "
              "l0.up, needs one reader");
}

// --- AddNorm

TEST(AddNorm, FusesBothNormsInEitherOrder) {
  for (const bool layer_norm : {false, true}) {
    for (const bool swapped : {false, true}) {
      TinyConfig config;
      config.layer_norm = layer_norm;
      config.swapped = swapped;
      auto graph = tiny_llama(config);
      const auto before = graph->clone();
      const MatchReport report = apply(*graph, "AddNorm");
      EXPECT_EQ(report.patterns[0].matches, 4);
      EXPECT_EQ(report.patterns[0].layers, (std::set<int>{0, 1}));
      EXPECT_EQ(find(*graph, "l1.attn_norm")->layer(), 1);
      EXPECT_EQ(find(*graph, "norm")->layer(), -1);
      EXPECT_EQ(find(*graph, "l0.ffn_norm")->input(0)->name(), "embed") << "the residual stream comes first";
      EXPECT_EQ(find(*graph, "l0.ffn_norm")->output(1)->name(), "l0.attn_sum");
      test::expect_same_numbers(*before, *graph);
    }
  }
}

TEST(AddNorm, KeepsTheSumForOtherReadersAndOutputs) {
  auto graph = tiny_llama(one_layer());
  graph->set_outputs({graph->outputs()[0], find(*graph, "l0.ffn_sum")->output()});
  expect_fused(std::move(graph), "AddNorm", 2);
}

TEST(AddNorm, NeedsOperandsOfOneShape) {
  auto graph = tiny_llama(one_layer());
  Value* vector = graph->add_input("vector", {DType::kF32, {24}, nullptr});
  graph->set_input(find(*graph, "l0.attn_sum"), 1, vector);
  const MatchReport report = apply(*graph, "AddNorm");
  EXPECT_EQ(report.patterns[0].matches, 1);  // the final norm
  ASSERT_EQ(report.misses.size(), 1u);
  EXPECT_EQ(
      report.misses[0].str(),
      "Pattern AddNorm not matched at layer 0: l0.attn_sum: operands of one shape, found [24], needs [B, T, 24] on "
      "both sides");
}

TEST(AddNorm, NeedsAConstantWeight) {
  auto graph = tiny_llama(one_layer());
  Value* w = graph->add_input("w", {DType::kF32, {24}, nullptr});
  graph->set_input(find(*graph, "l0.ffn_norm"), 1, w);
  const MatchReport report = apply(*graph, "AddNorm");
  EXPECT_EQ(report.patterns[0].matches, 1);
  ASSERT_EQ(report.misses.size(), 1u);
  EXPECT_EQ(report.misses[0].str(),
            "Pattern AddNorm not matched at layer 0: l0.ffn_norm: weight, found input %w, needs a constant");
}

}  // namespace
}  // namespace atb
