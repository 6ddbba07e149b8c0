// SPDX-License-Identifier: Apache-2.0
// insert_kv_cache: a ragged, incremental step gives the numbers of the cache-free graph, and what cannot is refused.
#include "passes/insert_kv_cache.h"

#include "graph_testing.h"
#include "passes/canonical/canonical.h"
#include "passes/dce.h"
#include "stepper.h"

namespace atb {
namespace {

using test::count;
using test::find;
using test::integers;
using test::Stepper;
using test::tiny_llama;
using test::TinyConfig;

std::unique_ptr<Graph> fused(std::unique_ptr<Graph> graph) {
  PipelineOptions options;
  options.cache = false;
  optimize(*graph, options);
  return graph;
}

void expect_incremental(const TinyConfig& config) {
  const auto plain = tiny_llama(config);
  const auto step = plain->clone();
  optimize(*step);
  const std::vector<std::vector<int64_t>> prompts = {{3, 1, 4, 1, 5, 9, 2}, {6, 5, 3}, {8}};
  Stepper stepper(*step);
  stepper.step(prompts, {0, 1}, {3, 1, 0});
  stepper.step(prompts, {1, 2, 0}, {1, 2, 1});
  stepper.step(prompts, {0}, {3, 0, 0});
  for (size_t s = 0; s < prompts.size(); ++s) {
    RefTensor<double> ids = integers(prompts[s]);
    ids.shape.insert(ids.shape.begin(), 1);
    const std::vector<double> expected = interpret<double>(*plain, {{"ids", ids}})[0].f;
    const std::vector<double>& actual = stepper.logits(static_cast<int64_t>(s));
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-9) << "sequence " << s;
  }
}

TEST(InsertKvCache, IncrementalRaggedStepsEqualTheWholeSequence) {
  expect_incremental({});
  TinyConfig config;
  config.mask = "window";
  config.q_bias = config.k_bias = config.up_bias = true;
  config.rotary_dim = 4;
  config.interleaved = true;
  expect_incremental(config);
  config = {};
  config.kv_heads = 1;
  config.flat_heads = true;
  config.layer_norm = true;
  config.head_norm = true;
  config.scale = "div";
  config.swapped = true;
  expect_incremental(config);
}

TEST(InsertKvCache, StepGraphHasTheAgreedShape) {
  auto graph = tiny_llama();
  optimize(*graph);
  std::string inputs;
  for (const Value* input : graph->inputs()) inputs += input->name() + " " + input->type().str() + "; ";
  EXPECT_EQ(inputs, "ids i32[T]; positions i32[T]; logit_rows i32[L]; kv state; ");
  EXPECT_EQ(graph->output_names(), (std::vector<std::string>{"logits", "kv"}));
  EXPECT_EQ(graph->outputs()[0]->type().str(), "f32[L, 29]");
  EXPECT_EQ(graph->outputs()[1]->type().dtype, DType::kState);
  EXPECT_EQ(find(*graph, "logits")->input(0)->producer()->op_name(), "gather_rows");
  EXPECT_EQ(count(*graph, "iota"), 0);
  EXPECT_EQ(count(*graph, "rotary_table"), 1);
}

TEST(InsertKvCache, RowsAreGatheredBeforeTheHeadAndWhatFollowsIt) {
  auto graph = tiny_llama();
  Builder b(*graph);
  Value* capped = b("mul", {graph->outputs()[0], b.scalar(0.5)}, {}, "capped");
  graph->set_outputs({capped});
  optimize(*graph);
  EXPECT_EQ(find(*graph, "logits")->input(0)->producer()->op_name(), "gather_rows");
  EXPECT_EQ(count(*graph, "gather_rows"), 1);
}

TEST(InsertKvCache, LearnedPositionsFollowThePositionsInput) {
  auto graph = tiny_llama();
  Builder b(*graph, find(*graph, "l0.attn_norm"));
  std::vector<float> table = test::Random(3).vector(16 * 24, 1);
  Value* learned =
      b("embedding", {find(*graph, "pos")->output(), b.constant(Constant::from_f32("wpe", {16, 24}, table))});
  Value* sum = b("add", {find(*graph, "embed")->output(), b.reshape(learned, {1, Dim::symbol("T"), 24})});
  for (const char* name : {"l0.attn_norm", "l0.attn_sum"}) graph->set_input(find(*graph, name), 0, sum);
  const auto plain = graph->clone();
  optimize(*graph);
  const std::vector<std::vector<int64_t>> prompts = {{3, 1, 4, 1}};
  Stepper stepper(*graph);
  stepper.step(prompts, {0}, {2});
  stepper.step(prompts, {0}, {2});
  RefTensor<double> ids = integers(prompts[0]);
  ids.shape = {1, 4};
  const std::vector<double> expected = interpret<double>(*plain, {{"ids", ids}})[0].f;
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(stepper.logits(0)[i], expected[i], 1e-9);
}

TEST(InsertKvCache, AttentionToTheSameKeysSharesASlot) {
  auto graph = fused(tiny_llama());
  std::vector<Node*> attention;
  for (Node* node : graph->nodes()) {
    if (node->is("flash_attention")) attention.push_back(node);
  }
  for (size_t i : {1u, 2u}) graph->set_input(attention[1], i, attention[0]->input(i));
  eliminate_dead_code(*graph);
  insert_kv_cache(*graph);
  verify(*graph, "insert_kv_cache");
  EXPECT_EQ(count(*graph, "kv_append"), 1);
  EXPECT_EQ(count(*graph, "flash_attention_kv"), 2);
}

// --- Refusals

void expect_refused(Graph& graph, const std::string& message) {
  const size_t nodes = graph.nodes().size();
  try {
    insert_kv_cache(graph);
    FAIL() << "not refused: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_EQ(std::string(error.what()), message);
  }
  EXPECT_EQ(graph.nodes().size(), nodes);
  verify(graph, "refusal");
}

TEST(InsertKvCache, RefusesBidirectionalAttention) {
  TinyConfig config;
  config.mask = "none";
  const auto graph = fused(tiny_llama(config));
  expect_refused(
      *graph,
      "[insert_kv_cache] flash_attention (flash_attention, model.layers.0.self_attn): tokens see later ones, "
      "so keys cannot be cached");
}

TEST(InsertKvCache, RefusesAnUnknownMask) {
  auto graph = tiny_llama();
  Builder b(*graph, find(*graph, "l1.masked"));
  Value* odd = b("mul", {find(*graph, "mask")->output(), b.scalar(0.5)}, {}, "odd");
  Value* odder = b("add", {odd, b.scalar(0.25)}, {}, "odder");
  graph->set_input(find(*graph, "l1.masked"), 1, odder);
  graph = fused(std::move(graph));
  expect_refused(*graph,
                 "[insert_kv_cache] flash_attention_1 (flash_attention, model.layers.1.self_attn): its mask is not "
                 "causality and a window alone: %odder adds 0.25 or -inf; a key is seen by 0 and hidden by -10000 or "
                 "less");
}

TEST(InsertKvCache, RefusesPackedSequences) {
  auto graph = tiny_llama();
  const Dim batch = Dim::symbol("B"), t = Dim::symbol("T");
  Builder b(*graph, find(*graph, "l0.masked"));
  const int32_t end = 2;
  Value* ends = b("equal", {graph->inputs()[0], b.constant(Constant::from_i32("end", {}, std::span(&end, 1)))});
  Value* segments = b("cumsum", {ends}, {{"axis", int64_t{1}}}, "segments");
  Value* same =
      b("equal", {b.reshape(segments, {batch, 1, 1, t, 1}), b.reshape(segments, {batch, 1, 1, 1, t})}, {}, "same");
  const Node* mask = find(*graph, "mask");
  Value* packed = b("where", {same, mask->output(), mask->input(2)}, {}, "packed");
  for (const char* name : {"l0.masked", "l1.masked"}) graph->set_input(find(*graph, name), 1, packed);
  graph = fused(std::move(graph));
  expect_refused(*graph,
                 "[insert_kv_cache] flash_attention (flash_attention, model.layers.0.self_attn): its mask keeps packed "
                 "sequences apart (%segments); a row of a cache is one sequence, so give each a row of its own");
}

TEST(InsertKvCache, RefusesUnfusedAttention) {
  auto graph = tiny_llama();
  expect_refused(*graph,
                 "[insert_kv_cache] visible (less_equal): pairs of positions outside attention; SDPA must fuse what "
                 "reads them");
}

TEST(InsertKvCache, RefusesWhatMixesTokens) {
  auto graph = fused(tiny_llama());
  Node* norm = find(*graph, "norm");
  Builder b(*graph, norm);
  b.set_scope("model.mixer");
  const Dim t = Dim::symbol("T");
  Value* turned = b.transpose(norm->input(0), {0, 2, 1});
  Value* mixed = b.transpose(b("softmax", {turned}, {}, "mixer"), {0, 2, 1});
  graph->set_input(norm, 0, mixed);
  expect_refused(*graph,
                 "[insert_kv_cache] mixer (softmax, model.mixer): its last axis is the token axis, so it mixes tokens");
}

TEST(InsertKvCache, RefusesOtherUsesOfTheLength) {
  auto graph = fused(tiny_llama());
  graph->set_attr(find(*graph, "pos"), "shape", Shape{Dim::symbol("T") + Dim(1)});
  graph->reinfer(find(*graph, "pos"));
  try {
    insert_kv_cache(*graph);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "[insert_kv_cache] pos (iota): counts to T + 1, not to the number of tokens T");
  }
}

TEST(InsertKvCache, RefusesAFixedLengthAndOtherInputs) {
  Graph fixed;
  Value* ids = fixed.add_input("ids", {DType::kI32, {1, 8}, nullptr});
  fixed.set_outputs({ids});
  EXPECT_THROW(insert_kv_cache(fixed), Error);
  auto graph = tiny_llama();
  graph->add_input("extra", {DType::kF32, {4}, nullptr});
  expect_refused(*graph, "[insert_kv_cache] inputs ids i32[B, T], extra f32[4]: needs one input, token ids [B, T]");
}

}  // namespace
}  // namespace atb
