// SPDX-License-Identifier: Apache-2.0
// cache_attention: pieces of B sequences give the numbers of the whole, state is linear, and what cannot is refused.
#include "passes/cache_attention.h"

#include <limits>

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

// A mask over the keys [0, keys) for the tokens [first, first + count): the same numbers whatever the piece. Zero, or
// -inf for a third of the keys, floats by head too; bools [B, S] are the first head and token.
RefTensor<double> cache_mask(const CausalConfig& config, int64_t batch, int64_t first, int64_t count, int64_t keys) {
  RefTensor<double> mask;
  const bool floats = config.mask == "cache floats";
  mask.dtype = floats ? DType::kF32 : DType::kBool;
  mask.shape = floats ? std::vector<int64_t>{batch, config.heads, count, keys} : std::vector<int64_t>{batch, keys};
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < (floats ? config.heads : 1); ++h) {
      for (int64_t t = floats ? first : 0; t < (floats ? first + count : 1); ++t) {
        for (int64_t s = 0; s < keys; ++s) {
          const bool hidden = (5 * b + 3 * h + 2 * t + s) % 3 == 0;
          if (floats) {
            mask.f.push_back(hidden ? -std::numeric_limits<double>::infinity() : 0.25 * static_cast<double>(s % 4));
          } else {
            mask.i.push_back(hidden ? 0 : 1);
          }
        }
      }
    }
  }
  return mask;
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
  const bool masked = config.mask.starts_with("cache");
  if (masked) whole["mask"] = cache_mask(config, batch, 0, tokens, tokens);
  const RefTensor<double> expected = interpret<double>(*plain, whole)[0];
  RefTensor<double> kv;
  kv.dtype = DType::kState;
  int64_t past = 0;
  for (const int64_t rows : {3, 1, 5}) {
    test::Inputs inputs = {{"x", piece(x, past, rows)}, {"kv", kv}};
    if (config.rotary) inputs["positions"] = positions_from(past, rows);
    if (masked) inputs["mask"] = cache_mask(config, batch, past, rows, past + rows);
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

TEST(CacheAttention, MasksOverAllKeysStay) {
  for (const char* mask : {"cache", "cache floats"}) {
    expect_incremental({.layers = 2, .mask = mask});
    expect_incremental({.window = 4, .softcap = 2.5, .mask = mask, .rotary = true});
    auto graph = causal_block({.mask = mask});
    optimize(*graph, cached({.mask = mask}));
    EXPECT_EQ(count(*graph, "slice"), 0) << print(*graph);
    const std::vector<CachedSlot> slots = cached_slots(*graph);
    ASSERT_TRUE(slots[0].mask_keys.has_value());
    EXPECT_EQ(slots[0].mask_keys->str(), "S");
  }
}

// What is made for a call's keys alone is one over all of them while the cache is empty.
TEST(CacheAttention, AnInputOverTheCallsKeysIsOneOfAnEmptyCache) {
  auto graph = causal_block({.mask = "input"});
  optimize(*graph, cached({.mask = "input"}));
  ASSERT_TRUE(cached_slots(*graph)[0].mask_keys.has_value());
  EXPECT_EQ(cached_slots(*graph)[0].mask_keys->str(), "T");
}

// As the pass writes it.
TEST(CacheAttention, MaskOfKeysGolden) {
  const CausalConfig config{.heads = 2, .kv_heads = 2, .head_dim = 4, .mask = "cache"};
  auto graph = causal_block(config);
  optimize(*graph, cached(config));
  std::string text;
  for (const Node* node : graph->nodes()) {
    const bool of_mask = node->is("where") || node->is("flash_attention_kv");
    if (of_mask || node->input(0)->name() == "mask")
      text += node->op_name() + " " + node->output()->type().str() + "; ";
  }
  EXPECT_EQ(text, "reshape bool[B, 1, 1, S]; where f32[B, 1, 1, S]; flash_attention_kv f32[B*T, 2, 4]; ");
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
  EXPECT_FALSE(slots[1].mask_keys.has_value());
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

// The numbers are those of PiecesOfSequencesEqualTheWhole.
TEST(CacheAttention, RotatedKeysGoStraightIntoTheCache) {
  const CausalConfig config{.layers = 2, .rotary = true};
  auto graph = causal_block(config), apart = graph->clone();
  optimize(*graph, cached(config));
  EXPECT_EQ(count(*graph, "rotary_kv_append"), 2) << print(*graph);
  EXPECT_EQ(count(*graph, "kv_append"), 0);
  EXPECT_EQ(count(*graph, "rotary_embedding"), 0);
  PipelineOptions options = cached(config);
  options.disabled_patterns = {"RoPE+KV"};
  optimize(*apart, options);
  EXPECT_EQ(count(*apart, "rotary_kv_append"), 0);
  EXPECT_EQ(count(*apart, "kv_append"), 2);
}

const char* const kRotated =
    R"(graph @rotated(%q: f32[B, T, 2, 4], %k: f32[B, T, 2, 4], %v: f32[B*T, 2, 4], %cos: f32[T, 2], %sin: f32[T, 2], %kv: state) {
  symbols B in [1, 64], T in [1, 4096]
  %q_rot, %k_rot = rotary_embedding(%q, %k, %cos, %sin) {layer=0} : f32[B, T, 2, 4], f32[B, T, 2, 4]
  %k_rows = reshape(%k_rot) {layer=0, shape=[B*T, 2, 4]} : f32[B*T, 2, 4]
  %kv_append = kv_append(%k_rows, %v, %kv) {layer=0, slot=0} : state
  return %q_rot, %kv_append as kv
}
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

TEST(RopeKv, NeedsKeysThatTheCacheAloneReadsAsRows) {
  test::expect_fused(parse_graph(kRotated), "RoPE+KV", 1);
  auto read = parse_graph(replaced(kRotated, "return %q_rot", "return %q_rot, %k_rot"));
  test::expect_miss(*read, "RoPE+KV",
                    "Pattern RoPE+KV not matched at layer 0: kv_append: keys read by the cache alone, found a graph "
                    "output, needs keys read by the cache alone");
  // Other rows than those of tokens: heads as tokens.
  std::string merged =
      replaced(kRotated, "shape=[B*T, 2, 4]} : f32[B*T, 2, 4]", "shape=[2*B*T, 1, 4]} : f32[2*B*T, 1, 4]");
  merged = replaced(merged, "%v: f32[B*T, 2, 4]", "%v: f32[2*B*T, 1, 4]");
  test::expect_miss(
      *parse_graph(merged), "RoPE+KV",
      "Pattern RoPE+KV not matched at layer 0: k_rows: rows of tokens, found [B, T, 2, 4] seen as [2*B*T, 1, "
      "4], needs [B, T, H, D] as [B * T, H, D]");
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
  expect_refused({.mask = "numbers"}, {"layers.0.attn"}, "layers.0.attn: the attention has a mask of its own, f32[");
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
