// SPDX-License-Identifier: Apache-2.0
// cache_attention: pieces of B sequences give the numbers of the whole, state is linear, and what cannot is refused.
#include "passes/cache_attention.h"

#include "causal_block.h"
#include "graph_testing.h"
#include "ir/text.h"

namespace atb {
namespace {

using test::causal_block;
using test::CausalConfig;
using test::count;
using test::scopes_of;

PipelineOptions cached(const CausalConfig& config) {
  PipelineOptions options;
  options.cache = false;
  options.cached_scopes = scopes_of(config);
  options.verify = true;
  return options;
}

RefTensor<double> floats(std::vector<int64_t> shape, test::Random& random) {
  RefTensor<double> tensor;
  tensor.dtype = DType::kF32;
  tensor.shape = std::move(shape);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.f.push_back(random.next());
  return tensor;
}

RefTensor<double> positions_from(int64_t first, int64_t count) {
  RefTensor<double> tensor;
  tensor.dtype = DType::kI32;
  tensor.shape = {count};
  for (int64_t i = 0; i < count; ++i) tensor.i.push_back(first + i);
  return tensor;
}

// Rows [first, first + count) of axis 1 of [B, T, C].
RefTensor<double> piece(const RefTensor<double>& x, int64_t first, int64_t count) {
  RefTensor<double> part;
  part.dtype = x.dtype;
  part.shape = {x.shape[0], count, x.shape[2]};
  for (int64_t b = 0; b < x.shape[0]; ++b) {
    const auto at = x.f.begin() + (b * x.shape[1] + first) * x.shape[2];
    part.f.insert(part.f.end(), at, at + count * x.shape[2]);
  }
  return part;
}

// A cached graph fed piece by piece equals the plain graph on the whole.
void expect_incremental(const CausalConfig& config) {
  const auto plain = causal_block(config);
  const auto step = plain->clone();
  optimize(*step, cached(config));
  EXPECT_EQ(count(*step, "flash_attention_kv"), config.layers);
  EXPECT_EQ(count(*step, "flash_attention"), 0);
  EXPECT_EQ(step->inputs().back()->type().dtype, DType::kState);
  EXPECT_EQ(step->output_names().back(), "kv");

  test::Random random(3);
  const int64_t batch = 2, tokens = 9;
  const RefTensor<double> x = floats({batch, tokens, config.heads * config.head_dim}, random);
  test::Inputs whole = {{"x", x}};
  if (config.rotary) whole["positions"] = positions_from(0, tokens);
  const RefTensor<double> expected = interpret<double>(*plain, whole)[0];
  RefTensor<double> kv;
  kv.dtype = DType::kState;
  int64_t past = 0;
  for (const int64_t rows : {3, 1, 5}) {
    test::Inputs inputs = {{"x", piece(x, past, rows)}, {"kv", kv}};
    if (config.rotary) inputs["positions"] = positions_from(past, rows);
    const auto out = interpret<double>(*step, inputs, {{0, 0, rows, past}, {1, rows, rows, past}});
    test::expect_near({out[0]}, {piece(expected, past, rows)});
    kv = out[1];
    past += rows;
  }
}

TEST(CacheAttention, PiecesOfSequencesEqualTheWhole) {
  expect_incremental({});
  expect_incremental({.layers = 3});
  expect_incremental({.layers = 2, .window = 3, .softcap = 2.5});
  expect_incremental({.heads = 3, .kv_heads = 3, .rotary = true});
  expect_incremental({.layers = 2, .heads = 4, .kv_heads = 1, .window = 4, .rotary = true});
}

TEST(CacheAttention, TellsWhatTheSlotsHold) {
  const CausalConfig config{.layers = 2};
  auto graph = causal_block(config);
  optimize(*graph, cached(config));
  const std::vector<CachedSlot> slots = cached_slots(*graph);
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[1].scope, "layers.1.attn");
  EXPECT_EQ(slots[1].batch.str(), "B");
  EXPECT_EQ(slots[1].tokens.str(), "T");
  EXPECT_EQ(slots[1].kv_heads, 2);
  EXPECT_EQ(slots[1].head_dim, 6);
  EXPECT_TRUE(cached_slots(*causal_block(config)).empty());
}

// Slots follow the list, versions of the state the order of execution.
TEST(CacheAttention, SlotsFollowTheList) {
  const CausalConfig config{.layers = 2};
  auto graph = causal_block(config);
  PipelineOptions options = cached(config);
  options.cached_scopes = {"layers.1.attn", "layers.0.attn"};
  optimize(*graph, options);
  std::string order;
  for (const Node* node : graph->nodes()) {
    if (node->is("kv_append")) order += node->scope() + " in " + std::to_string(node->attrs().integer("slot")) + "; ";
  }
  EXPECT_EQ(order, "layers.0.attn in 1; layers.1.attn in 0; ");
}

TEST(CacheAttention, OnlyTheNamedOnes) {
  const CausalConfig config{.layers = 2};
  auto graph = causal_block(config);
  PipelineOptions options = cached(config);
  options.cached_scopes = {"layers.1.attn"};
  optimize(*graph, options);
  EXPECT_EQ(count(*graph, "flash_attention"), 1);
  EXPECT_EQ(count(*graph, "flash_attention_kv"), 1);
}

// Without any fusion the attention is still made one: there is no cache without it.
TEST(CacheAttention, FusesWhatItNeeds) {
  const CausalConfig config;
  auto graph = causal_block(config);
  PipelineOptions options = cached(config);
  options.disabled_patterns = {"SDPA"};
  optimize(*graph, options);
  EXPECT_EQ(count(*graph, "flash_attention_kv"), 1);
}

TEST(CacheAttention, LeavesOtherInputsAndOutputs) {
  const CausalConfig config{.rotary = true};
  auto graph = causal_block(config);
  optimize(*graph, cached(config));
  std::string inputs;
  for (const Value* input : graph->inputs()) inputs += input->name() + " " + input->type().str() + "; ";
  EXPECT_EQ(inputs, "x f32[B, T, 24]; positions i32[T]; kv state; ");
  EXPECT_EQ(graph->output_names(), (std::vector<std::string>{"y", "kv"}));
  EXPECT_EQ(graph->outputs()[0]->type().str(), "f32[B, T, 24]");
}

// --- Refusals

void expect_refused(const CausalConfig& config, std::vector<std::string> scopes, const std::string& message) {
  auto graph = causal_block(config);
  PipelineOptions options = cached(config);
  options.cached_scopes.clear();
  optimize(*graph, options);
  const std::string before = print(*graph);
  try {
    cache_attention(*graph, scopes);
    FAIL() << "not refused: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
  EXPECT_EQ(print(*graph), before);
}

TEST(CacheAttention, RefusesWhatACacheCannotGive) {
  expect_refused({.mask = "none"}, {"layers.0.attn"},
                 "[cache_attention] layers.0.attn: the attention is not causal; a token cannot see later ones");
  expect_refused({.mask = "input"}, {"layers.0.attn"}, "layers.0.attn: the attention has a mask of its own, f32[");
  expect_refused({.cross = true}, {"layers.0.attn"}, "layers.0.attn: ");
  expect_refused({}, {"layers.0.attention"}, "[cache_attention] layers.0.attention: no attention that SDPA could fuse");
  expect_refused({}, {"layers.0.attn", "layers.0.attn"}, "layers.0.attn: named twice");
  expect_refused({.layers = 2}, {"layers.0.attn", "layers.2.attn"}, "layers.2.attn: no attention");
}

TEST(CacheAttention, RefusesTwoInOneScope) {
  const CausalConfig config{.layers = 2};
  auto graph = causal_block(config);
  for (Node* node : graph->nodes()) node->set_scope("attn");
  PipelineOptions options = cached(config);
  options.cached_scopes = {"attn"};
  try {
    optimize(*graph, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[cache_attention] attn: two attentions, "), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace atb
