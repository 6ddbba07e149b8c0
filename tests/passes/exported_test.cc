// SPDX-License-Identifier: Apache-2.0
// Exported spellings reach the form that the model families have: rotary embedding, masks, repeated heads, softcap; and
// the cache is inserted as into theirs.
#include "exported_decoder.h"

#include <algorithm>
#include <functional>

#include "graph_testing.h"
#include "passes/dce.h"
#include "passes/insert_kv_cache.h"
#include "stepper.h"

namespace atb {
namespace {

using test::count;
using test::exported_decoder;
using test::ExportedConfig;
using test::integers;
using test::Stepper;

constexpr double kTolerance = 1e-5;  // angles are products in f32

// Rows of sequences padded to `length` with id 3, on the left or on the right.
test::Inputs padded(const std::vector<std::vector<int64_t>>& prompts, size_t length, bool left, bool with_mask) {
  std::vector<int64_t> ids, present;
  for (const std::vector<int64_t>& prompt : prompts) {
    std::vector<int64_t> row = prompt, here(prompt.size(), 1);
    row.insert(left ? row.begin() : row.end(), length - prompt.size(), 3);
    here.insert(left ? here.begin() : here.end(), length - prompt.size(), 0);
    ids.insert(ids.end(), row.begin(), row.end());
    present.insert(present.end(), here.begin(), here.end());
  }
  test::Inputs inputs = {{"input_ids", integers(ids)}};
  if (with_mask) inputs["attention_mask"] = integers(present);
  for (auto& [name, tensor] : inputs) {
    tensor.dtype = DType::kI64;
    tensor.shape = {static_cast<int64_t>(prompts.size()), static_cast<int64_t>(length)};
  }
  return inputs;
}

const std::vector<std::vector<int64_t>> kPrompts = {{3, 1, 4, 1, 5, 9, 2}, {6, 5, 3}, {8}};

std::unique_ptr<Graph> fused(const Graph& plain) {
  auto graph = plain.clone();
  PipelineOptions options;
  options.cache = false;
  optimize(*graph, options);
  return graph;
}

void expect_equal_numbers(const Graph& plain, const Graph& graph, bool with_mask) {
  for (const bool left : {true, false}) {
    const test::Inputs inputs = padded(kPrompts, 9, left, with_mask);
    test::expect_near(interpret<double>(graph, inputs), interpret<double>(plain, inputs), kTolerance);
  }
}

const Node* attention_of(const Graph& graph) {
  for (const Node* node : graph.nodes()) {
    if (node->is("flash_attention")) return node;
  }
  ADD_FAILURE() << "no attention";
  return nullptr;
}

// The whole graph in the operators that the llama family fuses to, beside the plain ones that are named.
void expect_fused_form(const Graph& graph, const std::set<std::string>& others = {}) {
  std::set<std::string> allowed = {"embedding",        "iota",           "rotary_table", "merged_matmul",
                                   "rotary_embedding", "reshape",        "rms_norm",     "flash_attention",
                                   "linear",           "fused_add_norm", "fused_linear", "transpose"};
  allowed.insert(others.begin(), others.end());
  for (const Node* node : graph.nodes()) EXPECT_TRUE(allowed.count(node->op_name()) != 0) << node->op_name();
  EXPECT_EQ(count(graph, "transpose"), 0);
}

TEST(Exported, EveryRotarySpellingReachesTheFamiliesForm) {
  for (const char* rotary : {"halves", "pairs", "parts"}) {
    for (const int64_t rotary_dim : {8, 4}) {
      for (const char* head_norm : {"none", "split", "turned", "flat"}) {
        ExportedConfig config;
        config.rotary = rotary;
        config.rotary_dim = rotary_dim;
        config.head_norm = head_norm;
        config.attention_scaling = rotary_dim == 8 ? 1.0 : 1.25;
        SCOPED_TRACE(std::string(rotary) + " " + std::to_string(rotary_dim) + " " + head_norm);
        const auto plain = exported_decoder(config);
        const auto graph = fused(*plain);
        expect_fused_form(*graph);
        EXPECT_EQ(count(*graph, "rotary_embedding"), 1);
        EXPECT_EQ(count(*graph, "fused_linear"), 1);  // the merged projections and the norm before them
        EXPECT_EQ(count(*graph, "rotary_table"), 1);
        for (const Node* node : graph->nodes()) {
          if (node->is("rotary_table")) {
            EXPECT_TRUE(node->input(0)->producer()->is("iota"));
            EXPECT_EQ(node->attrs().real("scale"), config.attention_scaling);
          }
          if (node->is("rotary_embedding")) {
            EXPECT_EQ(node->attrs().flag("interleaved"), config.rotary == "pairs");
          }
        }
        expect_equal_numbers(*plain, *graph, false);
      }
    }
  }
}

TEST(Exported, TablesMayBeRowsOfConstants) {
  for (const char* tables : {"cached", "taken"}) {
    for (const char* rotary : {"halves", "pairs", "parts"}) {
      ExportedConfig config;
      config.tables = tables;
      config.rotary = rotary;
      config.layers = 2;
      SCOPED_TRACE(std::string(tables) + " " + rotary);
      const auto plain = exported_decoder(config);
      const auto graph = fused(*plain);
      expect_fused_form(*graph);
      EXPECT_EQ(count(*graph, "rotary_embedding"), 2);
      EXPECT_EQ(count(*graph, "embedding"), 3) << "ids, cos and sin";
      expect_equal_numbers(*plain, *graph, false);
    }
  }
}

// What is nearly a rotation stays what it is.
TEST(Exported, NearRotationsStay) {
  const auto spoilt = [](auto spoil) {
    auto plain = exported_decoder();
    std::vector<Node*> nodes;
    for (Node* node : plain->nodes()) {
      if (node->is("concat") && node->layer() == 0) nodes.push_back(node);
    }
    Builder b(*plain, nodes.at(0));
    spoil(*plain, b, *nodes[0]);
    verify(*plain, "spoilt");
    const auto graph = fused(*plain);
    EXPECT_EQ(count(*graph, "rotary"), 1) << "of k alone";
    EXPECT_EQ(count(*graph, "rotary_embedding"), 0);
    expect_equal_numbers(*plain, *graph, false);
  };
  // The other half is not negated.
  spoilt(
      [](Graph& graph, Builder&, Node& turned) { graph.set_input(&turned, 0, turned.input(0)->producer()->input(0)); });
  // The wrong half is.
  spoilt([](Graph& graph, Builder& b, Node& turned) {
    Value* high = turned.input(0)->producer()->input(0);
    Value* low = turned.input(1);
    graph.set_input(&turned, 0, high);
    graph.set_input(&turned, 1, b("neg", {low}));
  });
  // Both halves are the same.
  spoilt([](Graph& graph, Builder& b, Node& turned) { graph.set_input(&turned, 1, b("neg", {turned.input(0)})); });
  // Another sine on one half.
  spoilt([](Graph& graph, Builder& b, Node& turned) {
    Node* product = turned.output()->uses()[0].node;
    Value* sine = product->input(1);
    const int64_t half = sine->dim(-1).constant() / 2;
    const auto part = [&](int64_t begin, int64_t end) {
      return b("slice", {sine}, {{"axis", int64_t{3}}, {"bounds", Shape{Dim(begin), Dim(end)}}});
    };
    Value* changed = b("mul", {part(half, 2 * half), b.scalar(1.5)});
    graph.set_input(product, 1, b("concat", {part(0, half), changed}, {{"axis", int64_t{3}}}));
  });
}

TEST(Exported, TablesAndMasksAreSharedByLayers) {
  ExportedConfig config;
  config.layers = 3;
  const auto plain = exported_decoder(config);
  const auto graph = fused(*plain);
  expect_fused_form(*graph);
  EXPECT_EQ(count(*graph, "rotary_table"), 1);
  EXPECT_EQ(count(*graph, "iota"), 1);
  EXPECT_EQ(count(*graph, "flash_attention"), 3);
  expect_equal_numbers(*plain, *graph, false);
}

TEST(Exported, PackedSequenceDetectionIsSeenToBeCausal) {
  for (const char* fill : {"-inf", "min"}) {
    for (const int64_t window : {0, 4}) {
      ExportedConfig config;
      config.fill = fill;
      config.window = window;
      const auto plain = exported_decoder(config);
      const auto graph = fused(*plain);
      const Node* attention = attention_of(*graph);
      EXPECT_EQ(attention->input(3), nullptr);
      EXPECT_TRUE(attention->attrs().flag("causal"));
      EXPECT_EQ(attention->attrs().integer("window"), window);
      EXPECT_EQ(attention->input(1)->dim(2), Dim(2)) << "two key heads";
      expect_equal_numbers(*plain, *graph, false);
    }
  }
}

TEST(Exported, PaddingStandsApartFromCausalityWhereHiddenKeysHaveMinusInfinity) {
  ExportedConfig config;
  config.padding = true;
  auto plain = exported_decoder(config);
  auto graph = fused(*plain);
  const Node* attention = attention_of(*graph);
  ASSERT_NE(attention->input(3), nullptr);
  EXPECT_EQ(to_string(attention->input(3)->shape()), "[B, 1, 1, T]");
  EXPECT_TRUE(attention->attrs().flag("causal"));
  expect_equal_numbers(*plain, *graph, true);
}

// A row that sees no key is the mean of all values, those that causality hides too.
TEST(Exported, PaddingWithAFiniteFillStaysOneMask) {
  ExportedConfig config;
  config.padding = true;
  config.fill = "min";
  auto plain = exported_decoder(config);
  auto graph = fused(*plain);
  const Node* attention = attention_of(*graph);
  ASSERT_NE(attention->input(3), nullptr);
  EXPECT_EQ(to_string(attention->input(3)->shape()), "[B, 1, T, T]");
  EXPECT_FALSE(attention->attrs().flag("causal"));
  expect_equal_numbers(*plain, *graph, true);
}

TEST(Exported, SoftcapBecomesAnAttribute) {
  ExportedConfig config;
  config.softcap = 0.7;
  const auto plain = exported_decoder(config);
  const auto graph = fused(*plain);
  expect_fused_form(*graph);
  const Node* attention = attention_of(*graph);
  EXPECT_NEAR(attention->attrs().real("softcap"), 0.7, 1e-7);
  EXPECT_NEAR(attention->attrs().real("scale"), 1 / std::sqrt(8.0), 1e-7);
  expect_equal_numbers(*plain, *graph, false);
}

TEST(Exported, FlattenedRowsAreRowsOfTokens) {
  ExportedConfig config;
  config.flat_rows = true;
  const auto plain = exported_decoder(config);
  const auto graph = fused(*plain);
  expect_fused_form(*graph);
  for (const Node* node : graph->nodes()) {
    EXPECT_FALSE(node->output()->dim(0) == Dim::symbol("B") * Dim::symbol("T")) << node->name();
  }
  expect_equal_numbers(*plain, *graph, false);
}

TEST(Exported, CountedPositionsAreIota) {
  ExportedConfig config;
  config.learned_positions = true;
  config.rotary_dim = 0;
  const auto plain = exported_decoder(config);
  const auto graph = fused(*plain);
  expect_fused_form(*graph, {"add"});
  EXPECT_EQ(count(*graph, "cumsum"), 0);
  expect_equal_numbers(*plain, *graph, false);
}

// --- Cache insertion

void expect_incremental(const ExportedConfig& config) {
  const auto plain = exported_decoder(config);
  const auto step = plain->clone();
  optimize(*step);
  Stepper stepper(*step);
  stepper.step(kPrompts, {0, 1}, {3, 1, 0});
  stepper.step(kPrompts, {1, 2, 0}, {1, 2, 1});
  stepper.step(kPrompts, {0}, {3, 0, 0});
  for (size_t s = 0; s < kPrompts.size(); ++s) {
    const test::Inputs inputs = padded({kPrompts[s]}, kPrompts[s].size(), true, config.padding);
    const std::vector<double> expected = interpret<double>(*plain, inputs)[0].f;
    const std::vector<double>& actual = stepper.logits(static_cast<int64_t>(s));
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], kTolerance) << "sequence " << s;
  }
}

TEST(ExportedCache, StepsEqualTheWholeSequence) {
  ExportedConfig config;
  config.layers = 2;
  expect_incremental(config);
  config.padding = true;
  config.fill = "min";
  expect_incremental(config);
  config.window = 4;
  config.softcap = 0.7;
  config.rotary_dim = 4;
  config.head_norm = "turned";
  expect_incremental(config);
  config = {};
  config.learned_positions = true;
  config.rotary_dim = 0;
  config.flat_rows = true;
  expect_incremental(config);
  config = {};
  config.tables = "cached";
  expect_incremental(config);
}

TEST(ExportedCache, StepHasTheAgreedInputs) {
  ExportedConfig config;
  config.padding = true;
  auto graph = exported_decoder(config);
  optimize(*graph);
  std::string inputs;
  for (const Value* input : graph->inputs()) inputs += input->name() + " " + input->type().str() + "; ";
  EXPECT_EQ(inputs, "ids i32[T]; positions i32[T]; logit_rows i32[L]; kv state; ");
  EXPECT_EQ(count(*graph, "rotary_kv_append"), 1);
  EXPECT_EQ(count(*graph, "iota"), 0);
}

TEST(ExportedCache, LogitsOfTheLastTokenCommute) {
  auto plain = exported_decoder();
  Value* logits = plain->outputs()[0];
  Builder b(*plain);
  const Dim t = logits->dim(1);
  Value* last = b("slice", {logits}, {{"axis", int64_t{1}}, {"bounds", Shape{t - Dim(1), t}}});
  plain->set_outputs({b("mul", {b("tanh", {last}), b.scalar(3)})}, {"logits"});
  const auto step = plain->clone();
  optimize(*step);
  Stepper stepper(*step);
  stepper.step(kPrompts, {0}, {7, 0, 0});
  const std::vector<double> expected = interpret<double>(*plain, padded({kPrompts[0]}, 7, true, false))[0].f;
  const std::vector<double>& all = stepper.logits(0);
  ASSERT_EQ(all.size(), 7 * expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(all[6 * expected.size() + i], expected[i], kTolerance);
}

// The decoder with something in the place of its final norm's result or of its logits.
std::unique_ptr<Graph> with_last(const std::function<Value*(Builder&, Value*)>& select, bool before_head) {
  auto graph = exported_decoder();
  Node* head = graph->outputs()[0]->producer();
  if (!before_head) {
    Builder b(*graph);
    graph->set_outputs({select(b, graph->outputs()[0])}, {"logits"});
    return graph;
  }
  Builder b(*graph, head);
  Value* x = select(b, head->input(0));
  graph->set_input(head, 0, x);
  graph->reinfer(head);
  return graph;
}

// The step's logits of all seven tokens of a prompt, and those of the cache-free graph for its last token.
void expect_last_logits(const Graph& plain, const std::string& what) {
  const auto step = plain.clone();
  optimize(*step);
  EXPECT_EQ(count(*step, "take") + count(*step, "slice"), 0) << what;
  EXPECT_EQ(step->outputs()[0]->rank(), 2) << what;
  Stepper stepper(*step);
  stepper.step(kPrompts, {0}, {7, 0, 0});
  const std::vector<double> expected = interpret<double>(plain, padded({kPrompts[0]}, 7, true, false))[0].f;
  const std::vector<double>& all = stepper.logits(0);
  ASSERT_EQ(all.size(), 7 * expected.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(all[6 * expected.size() + i], expected[i], kTolerance) << what;
  }
}

bool head_reads_gathered_rows(const Graph& step) {
  return std::any_of(step.nodes().begin(), step.nodes().end(), [](const Node* node) {
    const Node* rows = node->is("linear") ? node->input(0)->producer() : nullptr;
    return rows != nullptr && rows->is("gather_rows");
  });
}

Value* last_by_slice(Builder& b, Value* x) {
  const Dim t = x->dim(1);
  return b("slice", {x}, {{"axis", int64_t{1}}, {"bounds", Shape{t - Dim(1), t}}}, "last");
}
Value* last_by_select(Builder& b, Value* x) {
  return b.reshape(last_by_slice(b, x), {x->dim(0), x->dim(2)}, "selected");
}
Value* take_rows(Builder& b, Value* x, std::vector<int32_t> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  Value* taken =
      b("take", {b.transpose(x, {1, 0, 2}), b.constant(Constant::from_i32("rows", {count}, rows))}, {}, "taken");
  return b.transpose(taken, {1, 0, 2});
}
Value* last_by_take(Builder& b, Value* x) { return take_rows(b, x, {-1}); }
Value* last_of_tokens_first(Builder& b, Value* x) {
  const Dim t = x->dim(1);
  Value* turned = b.transpose(x, {1, 0, 2});
  Value* last = b("slice", {turned}, {{"axis", int64_t{0}}, {"bounds", Shape{t - Dim(1), t}}});
  return b.reshape(last, {x->dim(0), x->dim(2)});
}
Value* last_by_row_numbers(Builder& b, Value* x) {
  Value* numbers = b("cast", {b("iota", {}, {{"shape", Shape{x->dim(0)}}})}, {{"dtype", std::string("i64")}});
  return b("take", {last_by_select(b, x), numbers});
}
Value* last_with_axis(Builder& b, Value* x) {
  Value* rows = last_by_select(b, x);
  return b.reshape(b("silu", {rows}), {x->dim(0), 1, x->dim(2)});
}

TEST(ExportedCache, TheLastTokenMayBeSelectedInAnySpelling) {
  using Select = Value* (*)(Builder&, Value*);
  const std::vector<std::pair<std::string, Select>> spellings = {{"slice", last_by_slice},
                                                                 {"select", last_by_select},
                                                                 {"take", last_by_take},
                                                                 {"tokens first", last_of_tokens_first},
                                                                 {"row numbers", last_by_row_numbers},
                                                                 {"new axis", last_with_axis}};
  for (const auto& [name, select] : spellings) {
    const auto before = with_last(select, true);
    expect_last_logits(*before, name + " before the head");
    const auto step = before->clone();
    optimize(*step);
    EXPECT_TRUE(head_reads_gathered_rows(*step)) << name;
    expect_last_logits(*with_last(select, false), name + " of the logits");
  }
}

void expect_refused(Graph& graph, const std::string& message) {
  try {
    optimize(graph);
    FAIL() << "not refused: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_EQ(std::string(error.what()), message);
  }
}

TEST(ExportedCache, RefusesWhatMixesTokens) {
  const auto with = [](auto make) {
    auto graph = exported_decoder();
    Builder b(*graph);
    b.set_scope("model.mixer");
    graph->set_outputs({make(b, graph->outputs()[0])}, {"logits"});
    return graph;
  };
  auto first = with([](Builder& b, Value* x) {
    return b("slice", {x}, {{"axis", int64_t{1}}, {"bounds", Shape{Dim(0), Dim(1)}}}, "first");
  });
  expect_refused(*first,
                 "[insert_kv_cache] first (slice, model.mixer): takes tokens 0 to 1; only the last one may be taken");
  auto mean = with([](Builder& b, Value* x) {
    return b("mean", {x}, {{"axes", std::vector<int64_t>{1}}, {"keep", true}}, "pooled");
  });
  expect_refused(*mean, "[insert_kv_cache] pooled (mean, model.mixer): works along the token axis, so it mixes tokens");
  auto running = with([](Builder& b, Value* x) { return b("cumsum", {x}, {{"axis", int64_t{1}}}, "running"); });
  expect_refused(*running,
                 "[insert_kv_cache] running (cumsum, model.mixer): works along the token axis, so it mixes tokens");
  auto joined = with([](Builder& b, Value* x) {
    return b("concat", {x, b("neg", {x})}, {{"axis", int64_t{1}}}, "joined");
  });
  expect_refused(*joined,
                 "[insert_kv_cache] joined (concat, model.mixer): works along the token axis, so it mixes tokens");
}

TEST(ExportedCache, RefusesTokensThatAreNotTheLast) {
  auto second = with_last([](Builder& b, Value* x) { return take_rows(b, x, {-2}); }, true);
  expect_refused(*second,
                 "[insert_kv_cache] slice (slice): takes tokens T - 2 to T - 1; only the last one may be taken");
  auto two = with_last([](Builder& b, Value* x) { return take_rows(b, x, {-2, -1}); }, true);
  expect_refused(*two, "[insert_kv_cache] slice (slice): takes tokens T - 2 to T; only the last one may be taken");
  auto first = with_last([](Builder& b, Value* x) { return take_rows(b, x, {0}); }, true);
  expect_refused(*first, "[insert_kv_cache] slice (slice): takes tokens 0 to 1; only the last one may be taken");
  auto turned = with_last([](Builder& b, Value* x) { return take_rows(b, x, {-1, -2}); }, true);
  EXPECT_THROW(optimize(*turned), Error);
  // Added to all tokens, as by a pooled embedding: each token would see the last.
  auto mixed = with_last([](Builder& b, Value* x) { return b("add", {x, last_by_slice(b, x)}, {}, "mixed"); }, true);
  expect_refused(*mixed, "[insert_kv_cache] mixed (add): combines a token axis with the last token axis of last");
}

TEST(ExportedCache, RefusesOtherInputs) {
  auto graph = exported_decoder();
  graph->add_input("token_type_ids", {DType::kI64, graph->inputs()[0]->shape(), nullptr});
  expect_refused(*graph,
                 "[insert_kv_cache] inputs input_ids i64[B, T], token_type_ids i64[B, T]: needs one input, token ids "
                 "[B, T]");
}

}  // namespace
}  // namespace atb
