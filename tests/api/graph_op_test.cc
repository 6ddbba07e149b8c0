// SPDX-License-Identifier: Apache-2.0
// Declared blocks as applications use them: a cache in pieces, forks and errors, plugins of shared libraries.
#include "atb/graph_op.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "atb/error.h"

namespace atb {
namespace {

constexpr int64_t kWidth = 16, kHeads = 2;
const std::string kPlugins = ATB_TEST_PLUGINS;

std::string error_text(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::vector<float> wave(int64_t count, float step) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(step * static_cast<float>(i + 1));
  return values;
}

// Hidden states [batch, tokens, 16] of tokens [first, first + tokens): a piece has the numbers of the whole.
struct Hidden {
  Hidden(int64_t batch, int64_t first, int64_t tokens) : shape{batch, tokens, kWidth} {
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = first; t < first + tokens; ++t) {
        const std::vector<float> row =
            wave(kWidth, 0.3F + 0.7F * static_cast<float>(b) + 0.11F * static_cast<float>(t));
        values.insert(values.end(), row.begin(), row.end());
      }
    }
  }
  ArrayView view() const { return {values.data(), ElementType::kF32, shape}; }
  std::vector<int64_t> shape;
  std::vector<float> values;
};

std::unique_ptr<GraphOp> made(bool rope, const GraphOpOptions& options = {.threads = 1}) {
  GraphItem attention = items::flash_attention("attn", kHeads, true).with("kv_cache", true);
  if (rope) attention.branches = {{items::rotary_embedding()}};
  auto block =
      std::make_unique<GraphOp>(std::vector<GraphItem>{items::rms_norm("norm"), items::linear("qkv", 3 * kWidth),
                                                       attention, items::linear("out", kWidth), items::residual_add()},
                                options);
  float step = 0.7F;
  for (const GraphParameter& parameter : block->parameters(kWidth)) {
    const auto count = std::accumulate(parameter.shape.begin(), parameter.shape.end(), int64_t{1}, std::multiplies<>());
    const std::vector<float> values = wave(count, step += 0.1F);
    block->set_parameter(parameter.name, {values.data(), ElementType::kF32, parameter.shape});
  }
  return block;
}

KvCache cache_for(int64_t layers = 1, int64_t max_tokens = 64) {
  return KvCache({.layers = layers, .heads = kHeads, .head_dim = kWidth / kHeads, .max_tokens = max_tokens});
}

std::vector<float> floats(const Array& array) {
  const auto count = std::accumulate(array.shape.begin(), array.shape.end(), int64_t{1}, std::multiplies<>());
  return {array.as<float>(), array.as<float>() + count};
}

// Tokens [first, first + tokens) of a result.
std::vector<float> tokens_of(const Array& array, int64_t first, int64_t tokens) {
  std::vector<float> part;
  for (int64_t b = 0; b < array.shape[0]; ++b) {
    const float* at = array.as<float>() + (b * array.shape[1] + first) * array.shape[2];
    part.insert(part.end(), at, at + tokens * array.shape[2]);
  }
  return part;
}

TEST(GraphOpCache, PiecesHaveTheBitsOfTheWhole) {
  for (const bool rope : {false, true}) {
    const auto block = made(rope);
    const Hidden all(2, 0, 9);
    const Array whole = (*block)({.x = all.view()});
    KvCache cache = cache_for();
    int64_t held = 0;
    for (const int64_t tokens : {4, 1, 4}) {
      const Hidden part(2, held, tokens);
      EXPECT_EQ(floats((*block)({.x = part.view(), .kv_cache = &cache})), tokens_of(whole, held, tokens)) << rope;
      held += tokens;
      EXPECT_EQ(cache.length(), held);
    }
    EXPECT_EQ(cache.batch(), 2);
    EXPECT_EQ(cache.blocks_in_use(), 2);
    EXPECT_NE(block->graph_text().find("flash_attention_kv"), std::string::npos);
  }
}

TEST(GraphOpCache, MasksAreOverAllKeys) {
  const auto block = made(false);
  const Hidden all(2, 0, 6), first(2, 0, 4), second(2, 4, 2);
  const bool seen[] = {true, true, true, true, true, true, false, false, true, true, true, true};
  const bool seen_first[] = {true, true, true, true, false, false, true, true};
  const ArrayView mask{seen, ElementType::kBool, {2, 6}}, mask_first{seen_first, ElementType::kBool, {2, 4}};
  const Array whole = (*block)({.x = all.view(), .attention_mask = mask});
  KvCache cache = cache_for();
  const GraphCall wrong{.x = first.view(), .attention_mask = mask, .kv_cache = &cache};
  EXPECT_NE(error_text([&] { (*block)(wrong); }).find("attention_mask is for 6 keys, expected 4: the 0 in the cache"),
            std::string::npos);
  EXPECT_EQ(cache.length(), 0);
  (*block)({.x = first.view(), .attention_mask = mask_first, .kv_cache = &cache});
  const Array last = (*block)({.x = second.view(), .attention_mask = mask, .kv_cache = &cache});
  EXPECT_EQ(floats(last), tokens_of(whole, 4, 2));
  EXPECT_NE(floats((*block)({.x = all.view()})), floats(whole));
}

TEST(GraphOpCache, BlocksHaveSlotsOfTheirOwn) {
  const auto a = made(false), b = made(false), c = made(false);
  KvCache cache = cache_for(2);
  const Hidden x(1, 0, 3), more(1, 3, 2);
  (*a)({.x = x.view(), .kv_cache = &cache});
  (*a)({.x = more.view(), .kv_cache = &cache});
  (*b)({.x = x.view(), .kv_cache = &cache});
  EXPECT_EQ(cache.length(), 3);
  const std::string text = error_text([&] { (*c)({.x = x.view(), .kv_cache = &cache}); });
  EXPECT_NE(text.find("a block needs 1 of the cache's layers, 2 of 2 belong to other blocks"), std::string::npos)
      << text;
  cache.truncate(2);
  EXPECT_EQ(cache.length(), 2);
  cache.reset();
  EXPECT_EQ(cache.batch(), 0);
  (*c)({.x = x.view(), .kv_cache = &cache});
  EXPECT_EQ(cache.length(), 3);
}

TEST(GraphOpCache, ForksGoOnAlone) {
  const auto block = made(true);
  KvCache cache = cache_for();
  const Hidden first(1, 0, 3), next(1, 3, 2), other(1, 30, 1);
  (*block)({.x = first.view(), .kv_cache = &cache});
  KvCache twin = cache.fork();
  EXPECT_EQ(twin.shared_blocks(), 1);
  (*block)({.x = other.view(), .kv_cache = &twin});
  const Array whole = (*block)({.x = Hidden(1, 0, 5).view()});
  EXPECT_EQ(floats((*block)({.x = next.view(), .kv_cache = &cache})), tokens_of(whole, 3, 2));
  EXPECT_EQ(twin.length(), 4);
  EXPECT_EQ(cache.length(), 5);
  KvCache moved = std::move(twin);
  EXPECT_EQ(moved.length(), 4);
  const std::string text = error_text([&] { (*block)({.x = next.view(), .kv_cache = &twin}); });
  EXPECT_NE(text.find("the kv_cache was moved from"), std::string::npos) << text;
}

TEST(GraphOpCache, WhatDoesNotFitIsRefused) {
  const auto block = made(false);
  const Hidden x(1, 0, 3), two(2, 0, 1);
  KvCache other({.layers = 1, .heads = 3, .head_dim = 8, .max_tokens = 4});
  std::string text = error_text([&] { (*block)({.x = x.view(), .kv_cache = &other}); });
  EXPECT_NE(text.find("attention has 2 heads of keys of 8 features, the cache 3 of 8"), std::string::npos) << text;
  KvCache cache = cache_for(1, 4);
  (*block)({.x = x.view(), .kv_cache = &cache});
  text = error_text([&] { (*block)({.x = x.view(), .kv_cache = &cache}); });
  EXPECT_NE(text.find("holds 3 tokens, the call adds 3, max_tokens is 4"), std::string::npos) << text;
  text = error_text([&] { (*block)({.x = two.view(), .kv_cache = &cache}); });
  EXPECT_NE(text.find("the cache holds 1 sequences, the call has 2"), std::string::npos) << text;
  EXPECT_EQ(cache.length(), 3);
  GraphOp plain({items::linear("p", kWidth)});
  text = error_text([&] { plain({.x = x.view(), .kv_cache = &cache}); });
  EXPECT_NE(text.find("no item has kv_cache = true"), std::string::npos) << text;
  text = error_text([] { KvCache({.type = ElementType::kI32}); });
  EXPECT_NE(text.find("neither kF32 nor kBF16"), std::string::npos) << text;
  text = error_text([] { KvCache({.max_tokens = 0}); });
  EXPECT_NE(text.find("max_tokens is 0"), std::string::npos) << text;
}

TEST(GraphOpPlugins, RunAtTheirPointUntilTheyAreRemoved) {
  const auto block = made(false);
  const Hidden x(2, 0, 5);
  const std::vector<float> plain = floats((*block)({.x = x.view()}));
  const auto plugin = std::make_shared<Plugin>(kPlugins + "/libqk_norm.so");
  PluginHandle handle = block->register_plugin("pre_attention", plugin);
  const std::vector<float> changed = floats((*block)({.x = x.view()}));
  EXPECT_NE(changed, plain);
  EXPECT_NE(block->graph_text().find("kernel=\"qk_norm\""), std::string::npos);
  plugin->set_enabled(false);
  EXPECT_EQ(floats((*block)({.x = x.view()})), plain);
  plugin->set_enabled(true);
  EXPECT_EQ(floats((*block)({.x = x.view()})), changed);
  handle.remove();
  handle.remove();
  EXPECT_EQ(floats((*block)({.x = x.view()})), plain);
}

// The plugin reads positions, so pieces over a cache agree only if it is told them.
TEST(GraphOpPlugins, AreToldOfTheCall) {
  const auto block = made(true);
  const Hidden all(1, 0, 7);
  const std::vector<float> plain = floats((*block)({.x = all.view()}));
  block->register_plugin("pre_attn", std::make_shared<Plugin>(kPlugins + "/libscalable_softmax.so"));
  const Array whole = (*block)({.x = all.view()});
  EXPECT_NE(floats(whole), plain);
  KvCache cache = cache_for();
  for (int64_t held = 0; held < 7; ++held) {
    const Hidden part(1, held, 1);
    EXPECT_EQ(floats((*block)({.x = part.view(), .kv_cache = &cache})), tokens_of(whole, held, 1)) << held;
  }
}

TEST(GraphOpPlugins, WhatIsNoneIsRefused) {
  const auto block = made(false);
  const auto plugin = std::make_shared<Plugin>(kPlugins + "/libqk_norm.so");
  std::string text = error_text([&] { block->register_plugin("pre_query", plugin); });
  EXPECT_NE(text.find("[plugin] pre_query is no point of this block; points are pre_norm"), std::string::npos) << text;
  text = error_text([&] { block->register_plugin("pre_attn", nullptr); });
  EXPECT_NE(text.find("no plugin is given"), std::string::npos) << text;
  const auto only = std::make_shared<Plugin>(kPlugins + "/libqk_norm.so", "qk_norm");
  text = error_text([&] { block->register_plugin("post_attn", only); });
  EXPECT_NE(text.find("would do nothing"), std::string::npos) << text;
  text = error_text([] { Plugin(kPlugins + "/libqk_norm.so", "other"); });
  EXPECT_NE(text.find("has no kernel 'other'; it has qk_norm"), std::string::npos) << text;
  text = error_text([] { Plugin("libnone.so"); });
  EXPECT_NE(text.find("libnone.so cannot be loaded"), std::string::npos) << text;
  const Hidden x(1, 0, 3);
  block->register_plugin("pre_out", plugin);
  text = error_text([&] { (*block)({.x = x.view()}); });
  EXPECT_NE(text.find("pre_out (out): kernel qk_norm does not take it"), std::string::npos) << text;
}

}  // namespace
}  // namespace atb
