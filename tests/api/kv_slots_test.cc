// SPDX-License-Identifier: Apache-2.0
// Graphs with a KV cache: equal bits however tokens come, slots of their own lengths, forks, what fails and what stays.
#include "api/kv_slots.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "api/compiled_graph.h"
#include "core/error.h"
#include "passes/causal_block.h"

namespace atb {
namespace {

using test::causal_block;
using test::CausalConfig;
using test::scopes_of;

constexpr int64_t kWidth = 24;

std::string error_text(Code code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

// Hidden states [B, T, 24] of tokens [first, first + tokens): any piece of a sequence has the numbers of the whole.
struct Hidden {
  Hidden(int64_t batch, int64_t first, int64_t tokens) : shape{batch, tokens, kWidth} {
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = first; t < first + tokens; ++t) {
        test::Random random(static_cast<uint64_t>(b * 1000 + t));
        for (int64_t i = 0; i < kWidth; ++i) values.push_back(random.next());
      }
    }
  }
  TensorView view() { return TensorView::dense(reinterpret_cast<std::byte*>(values.data()), DType::kF32, shape); }
  std::vector<int64_t> shape;
  std::vector<float> values;
};

std::unique_ptr<CompiledGraph> compiled(const CausalConfig& config = {}, DType dtype = DType::kF32, int threads = 1) {
  CompileOptions options;
  options.threads = threads;
  options.cached = scopes_of(config);
  options.kv_dtype = dtype;
  return std::make_unique<CompiledGraph>(causal_block(config), options);
}

KvSlotsOptions options_of(const CausalConfig& config, int64_t max_tokens = 512, DType dtype = DType::kF32) {
  return {config.layers, config.kv_heads, config.head_dim, max_tokens, dtype};
}

std::vector<int64_t> all_slots(const CausalConfig& config) {
  std::vector<int64_t> slots;
  for (int64_t slot = 0; slot < config.layers; ++slot) slots.push_back(slot);
  return slots;
}

std::vector<float> run(CompiledGraph& graph, KvSlots* cache, std::vector<int64_t> slots, int64_t batch, int64_t first,
                       int64_t tokens) {
  Hidden x(batch, first, tokens);
  const std::vector<TensorView> inputs{x.view()};
  const std::vector<Tensor> out = graph.run(inputs, nullptr, {cache, slots});
  EXPECT_EQ(out.size(), 1u);
  const float* data = out[0].view().as<const float>();
  return {data, data + out[0].view().size()};
}

// Outputs [B, T, 24] put together from pieces of these lengths, sequence after sequence.
std::vector<float> in_pieces(CompiledGraph& graph, KvSlots& cache, const CausalConfig& config, int64_t batch,
                             const std::vector<int64_t>& pieces) {
  std::vector<std::vector<float>> rows(static_cast<size_t>(batch));
  int64_t past = cache.length(0);
  for (const int64_t tokens : pieces) {
    const std::vector<float> out = run(graph, &cache, all_slots(config), batch, past, tokens);
    for (int64_t b = 0; b < batch; ++b) {
      const auto at = out.begin() + b * tokens * kWidth;
      rows[static_cast<size_t>(b)].insert(rows[static_cast<size_t>(b)].end(), at, at + tokens * kWidth);
    }
    past += tokens;
  }
  std::vector<float> result;
  for (const auto& row : rows) result.insert(result.end(), row.begin(), row.end());
  return result;
}

void expect_same_bits(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0);
}

std::vector<int64_t> pieces_of(int64_t tokens, int64_t each) {
  std::vector<int64_t> pieces;
  for (int64_t at = 0; at < tokens; at += each) pieces.push_back(std::min(each, tokens - at));
  return pieces;
}

TEST(KvSlots, EqualBitsHoweverTokensCome) {
  for (const CausalConfig& config :
       {CausalConfig{}, CausalConfig{.layers = 2}, CausalConfig{.layers = 2, .window = 9, .softcap = 3.0}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const auto graph = compiled(config, dtype);
      const int64_t batch = 3, tokens = 150;  // beyond one partition of keys
      KvSlots whole(options_of(config, tokens, dtype));
      const std::vector<float> expected = in_pieces(*graph, whole, config, batch, {tokens});
      for (const int64_t each : {1, 3, 7, 64}) {
        KvSlots cache(options_of(config, tokens, dtype));
        expect_same_bits(in_pieces(*graph, cache, config, batch, pieces_of(tokens, each)), expected);
        EXPECT_EQ(cache.length(config.layers - 1), tokens);
      }
    }
  }
}

TEST(KvSlots, EqualBitsWithoutACache) {
  const CausalConfig config{.layers = 2};
  CompileOptions options;
  options.threads = 2;
  CompiledGraph plain(causal_block(config), options);
  const auto graph = compiled(config, DType::kF32, 2);
  KvSlots cache(options_of(config));
  expect_same_bits(in_pieces(*graph, cache, config, 2, {40, 1, 30}), run(plain, nullptr, {}, 2, 0, 71));
}

TEST(KvSlots, SequencesDoNotMeet) {
  const CausalConfig config;
  const auto graph = compiled(config);
  KvSlots both(options_of(config)), one(options_of(config));
  const std::vector<float> together = in_pieces(*graph, both, config, 2, {5, 5});
  const std::vector<float> alone = in_pieces(*graph, one, config, 1, {10});
  expect_same_bits({together.begin(), together.begin() + 10 * kWidth}, alone);
}

// Layers are called one after another; each slot has its own length.
TEST(KvSlots, SlotsHaveLengthsOfTheirOwn) {
  const CausalConfig config;
  const auto graph = compiled(config);
  KvSlots cache({3, config.kv_heads, config.head_dim, 64, DType::kF32});
  run(*graph, &cache, {0}, 1, 0, 5);
  run(*graph, &cache, {2}, 1, 0, 3);
  EXPECT_EQ(cache.length(0), 5);
  EXPECT_EQ(cache.length(1), 0);
  EXPECT_EQ(cache.length(2), 3);
  KvSlots other({1, config.kv_heads, config.head_dim, 64, DType::kF32});
  run(*graph, &other, {0}, 1, 0, 3);
  expect_same_bits(run(*graph, &cache, {2}, 1, 3, 4), run(*graph, &other, {0}, 1, 3, 4));
}

// A graph's slots are put where the caller says, whatever they hold.
TEST(KvSlots, SlotsOfAGraphMayLieAnywhere) {
  const CausalConfig config{.layers = 2};
  const auto graph = compiled(config);
  KvSlots a({2, config.kv_heads, config.head_dim, 64, DType::kF32});
  KvSlots b({5, config.kv_heads, config.head_dim, 64, DType::kF32});
  run(*graph, &a, {0, 1}, 2, 0, 6);
  run(*graph, &b, {4, 1}, 2, 0, 6);
  expect_same_bits(run(*graph, &b, {4, 1}, 2, 6, 2), run(*graph, &a, {0, 1}, 2, 6, 2));
}

TEST(KvSlots, TruncateTakesTokensBack) {
  const CausalConfig config{.layers = 2};
  const auto graph = compiled(config);
  KvSlots cache(options_of(config)), other(options_of(config));
  in_pieces(*graph, cache, config, 2, {50});
  in_pieces(*graph, other, config, 2, {33});
  run(*graph, &cache, {0, 1}, 2, 500, 7);  // other tokens
  const int64_t blocks = cache.blocks_in_use();
  cache.truncate(33);
  EXPECT_EQ(cache.length(1), 33);
  EXPECT_LE(cache.blocks_in_use(), blocks);
  expect_same_bits(run(*graph, &cache, {0, 1}, 2, 33, 5), run(*graph, &other, {0, 1}, 2, 33, 5));
  cache.truncate(0);
  EXPECT_EQ(cache.blocks_in_use(), 0);
  EXPECT_EQ(cache.batch(), 2);
  EXPECT_EQ(error_text(Code::kInvalidArgument, [&] { cache.truncate(1); }),
            "[kv] truncate to 1 tokens: the cache holds 0");
  EXPECT_NE(error_text(Code::kInvalidArgument, [&] { cache.truncate(-1); }), "no error");
}

TEST(KvSlots, ForksShareUntilTheyWrite) {
  const CausalConfig config{.layers = 2};
  const auto graph = compiled(config);
  KvSlots cache(options_of(config));
  in_pieces(*graph, cache, config, 2, {45});  // a full block of 32 and a part of one, for 2 layers and 2 sequences
  EXPECT_EQ(cache.blocks_in_use(), 8);
  EXPECT_EQ(cache.shared_blocks(), 0);
  auto fork = cache.fork();
  EXPECT_EQ(fork->length(1), 45);
  EXPECT_EQ(cache.pool_blocks_in_use(), 8);
  EXPECT_EQ(cache.shared_blocks(), 8);

  const std::vector<float> other = run(*graph, fork.get(), {0, 1}, 2, 700, 4);
  EXPECT_EQ(cache.pool_blocks_in_use(), 12);  // the part blocks were copied
  EXPECT_EQ(cache.shared_blocks(), 4);
  const std::vector<float> own = run(*graph, &cache, {0, 1}, 2, 45, 4);
  KvSlots again(options_of(config));
  in_pieces(*graph, again, config, 2, {45});
  auto again_fork = again.fork();
  expect_same_bits(run(*graph, &again, {0, 1}, 2, 45, 4), own);
  expect_same_bits(run(*graph, again_fork.get(), {0, 1}, 2, 700, 4), other);

  cache.reset();
  expect_same_bits(run(*graph, fork.get(), {0, 1}, 2, 49, 1), run(*graph, again_fork.get(), {0, 1}, 2, 49, 1));
  fork.reset();
  EXPECT_EQ(cache.pool_blocks_in_use(), 0);
}

TEST(KvSlots, ForksOutliveTheirOrigin) {
  const CausalConfig config;
  const auto graph = compiled(config);
  auto cache = std::make_unique<KvSlots>(options_of(config));
  in_pieces(*graph, *cache, config, 1, {10});
  const auto fork = cache->fork();
  const std::vector<float> expected = run(*graph, cache.get(), {0}, 1, 10, 3);
  cache.reset();
  expect_same_bits(run(*graph, fork.get(), {0}, 1, 10, 3), expected);
}

TEST(KvSlots, TheBatchIsFixedUntilReset) {
  const CausalConfig config;
  const auto graph = compiled(config);
  KvSlots cache(options_of(config));
  run(*graph, &cache, {0}, 2, 0, 4);
  EXPECT_EQ(error_text(Code::kInvalidArgument, [&] { run(*graph, &cache, {0}, 3, 4, 1); }),
            "[kv] the cache holds 2 sequences, the call has 3; reset() the cache before another batch size");
  EXPECT_EQ(cache.length(0), 4);
  cache.reset();
  EXPECT_EQ(cache.batch(), 0);
  EXPECT_EQ(cache.blocks_in_use(), 0);
  run(*graph, &cache, {0}, 3, 0, 1);
  EXPECT_EQ(cache.batch(), 3);
}

TEST(KvSlots, MaxTokensIsALimitOfEachSequence) {
  const CausalConfig config;
  const auto graph = compiled(config);
  KvSlots cache(options_of(config, 10));
  run(*graph, &cache, {0}, 4, 0, 8);
  EXPECT_EQ(error_text(Code::kResourceExhausted, [&] { run(*graph, &cache, {0}, 4, 8, 3); }),
            "[kv] layer 0 of the cache holds 8 tokens, the call adds 3, max_tokens is 10; truncate() or reset() the "
            "cache, or make it larger");
  EXPECT_EQ(cache.length(0), 8);
  run(*graph, &cache, {0}, 4, 8, 2);
  EXPECT_EQ(cache.length(0), 10);
}

TEST(KvSlots, WhatDoesNotFitIsRefused) {
  const CausalConfig config{.layers = 2};
  const auto graph = compiled(config);
  const auto refused = [&](KvSlots* cache, std::vector<int64_t> slots) {
    return error_text(Code::kInvalidArgument, [&] { run(*graph, cache, std::move(slots), 1, 0, 1); });
  };
  KvSlots heads({2, 4, 6, 64, DType::kF32}), dtype({2, 2, 6, 64, DType::kBF16}), good({2, 2, 6, 64, DType::kF32});
  EXPECT_EQ(refused(&heads, {0, 1}),
            "[kv] the cache has 4 heads of 6 in f32, the attention in layers.0.attn has 2 kv heads of 6 in f32");
  EXPECT_EQ(refused(&dtype, {0, 1}),
            "[kv] the cache has 2 heads of 6 in bf16, the attention in layers.0.attn has 2 kv heads of 6 in f32");
  EXPECT_EQ(refused(nullptr, {}), "[kv] block: its attentions read a cache; give one");
  EXPECT_EQ(refused(&good, {0}), "[kv] block: 1 slots given, it has 2 cached attentions");
  EXPECT_EQ(refused(&good, {0, 0}), "[kv] slot 0 is given twice; each attention of a graph has its own");
  EXPECT_EQ(refused(&good, {0, 2}), "[kv] slot 2 of a cache of 2 layers");
  EXPECT_EQ(refused(&good, {-1, 0}), "[kv] slot -1 of a cache of 2 layers");
  EXPECT_EQ(good.batch(), 0);
  CompiledGraph plain(causal_block(config), {});
  EXPECT_EQ(error_text(Code::kInvalidArgument,
                       [&] {
                         run(plain, &good, {0, 1}, 1, 0, 1);
                       }),
            "[kv] block: a cache is given, but no attention has one");
}

TEST(KvSlots, OptionsAreChecked) {
  const auto refused = [](const KvSlotsOptions& options) {
    return error_text(Code::kInvalidArgument, [&] { KvSlots cache(options); });
  };
  EXPECT_EQ(refused({0, 1, 1, 1}), "[kv] the number of layers is 0, allowed are 1 to 65536");
  EXPECT_EQ(refused({1, -2, 1, 1}), "[kv] the number of heads is -2, allowed are 1 to 65536");
  EXPECT_EQ(refused({1, 1, int64_t{1} << 40, 1}), "[kv] head_dim is 1099511627776, allowed are 1 to 65536");
  EXPECT_EQ(refused({1, 1, 1, int64_t{1} << 31}), "[kv] max_tokens is 2147483648, allowed are 1 to 2147483647");
  EXPECT_EQ(refused({1, 1, 1, 1, DType::kF16}), "[kv] dtype is f16, allowed are f32 and bf16");
  EXPECT_EQ(KvSlots({1, 65536, 65536, 2147483647}).blocks_in_use(), 0);
}

// --- A call that fails

// A graph whose attention is followed by code of the caller.
std::unique_ptr<CompiledGraph> with_host_kernel(HostKernel kernel) {
  const CausalConfig config;
  auto graph = causal_block(config);
  Builder b(*graph);
  Value* y = graph->outputs()[0];
  Node* made =
      b.node("external", {y},
             {{"target", std::string("test::after")}, {"types", y->type().str()}, {"kernel", std::string("after")}});
  graph->set_outputs({made->output()});
  CompileOptions options;
  options.threads = 1;
  options.cached = scopes_of(config);
  options.host_kernels["after"] = std::move(kernel);
  return std::make_unique<CompiledGraph>(std::move(graph), options);
}

TEST(KvSlots, ACallThatThrowsLeavesItAsItWas) {
  bool fails = false;
  KvSlots* inside = nullptr;
  std::string refusal;
  const auto graph = with_host_kernel([&](const HostCall& call) {
    if (inside != nullptr) refusal = error_text(Code::kFailedPrecondition, [&] { inside->reset(); });
    if (fails) throw_error(Code::kCancelled, "[test] not today");
    copy_dense(call.inputs[0], call.outputs[0].data);
  });
  const CausalConfig config;
  KvSlots cache(options_of(config)), other(options_of(config));

  fails = true;  // the first call of all: nothing is fixed by it
  EXPECT_EQ(error_text(Code::kCancelled, [&] { run(*graph, &cache, {0}, 3, 900, 40); }), "[test] not today");
  EXPECT_EQ(cache.batch(), 0);
  EXPECT_EQ(cache.blocks_in_use(), 0);

  fails = false;
  run(*graph, &cache, {0}, 2, 0, 20);
  run(*graph, &other, {0}, 2, 0, 20);
  fails = true;
  EXPECT_EQ(error_text(Code::kCancelled, [&] { run(*graph, &cache, {0}, 2, 900, 60); }), "[test] not today");
  EXPECT_EQ(cache.length(0), 20);
  EXPECT_EQ(cache.blocks_in_use(), 2);
  fails = false;
  inside = &cache;
  const std::vector<float> next = run(*graph, &cache, {0}, 2, 20, 3);
  EXPECT_EQ(refusal.find("[kv] reset() while a call appends to the cache; wait"), 0u) << refusal;
  inside = nullptr;
  expect_same_bits(next, run(*graph, &other, {0}, 2, 20, 3));
}

// What a failed call, or tokens taken back, left in a block must not reach later tokens, not even as NaN.
TEST(KvSlots, WhatWasTakenBackReachesNobody) {
  const CausalConfig config;
  const auto graph = compiled(config);
  KvSlots cache(options_of(config)), other(options_of(config));
  run(*graph, &cache, {0}, 1, 0, 5);
  run(*graph, &other, {0}, 1, 0, 5);
  Hidden bad(1, 5, 20);
  for (float& value : bad.values) value = std::numeric_limits<float>::quiet_NaN();
  const std::vector<TensorView> inputs{bad.view()};
  const std::vector<int64_t> slots{0};
  graph->run(inputs, nullptr, {&cache, slots});
  cache.truncate(5);
  for (int64_t tokens = 1; tokens < 4; ++tokens) {
    const int64_t past = cache.length(0);
    expect_same_bits(run(*graph, &cache, {0}, 1, past, tokens), run(*graph, &other, {0}, 1, past, tokens));
  }
}

TEST(KvSlots, EmptyCallsAppendNothing) {
  const CausalConfig config;
  KvSlots cache(options_of(config));
  {
    const std::vector<int64_t> slots{0};
    KvSlots::Step step(cache, slots, 2, 0);
    ASSERT_EQ(step.sequences().size(), 2u);
    step.commit();
  }
  EXPECT_EQ(cache.length(0), 0);
  EXPECT_EQ(cache.batch(), 2);
}

}  // namespace
}  // namespace atb
