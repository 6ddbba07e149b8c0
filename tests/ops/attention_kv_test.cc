// SPDX-License-Identifier: Apache-2.0
// Cached attention against the interpreter in f64, brute force and closed forms.
#include <gtest/gtest.h>

#include "ops/attention_rig.h"

namespace atb::testing {
namespace {

constexpr double kTolerance = 3e-6;  // values lie in [-1, 1]

std::string describe(const AttentionConfig& c) {
  return std::to_string(c.heads) + " heads, " + std::to_string(c.kv_heads) + " kv, head_dim " +
         std::to_string(c.head_dim) + ", " + std::string(dtype_name(c.dtype)) + ", window " + std::to_string(c.window) +
         ", blocks of " + std::to_string(c.block_tokens);
}

std::vector<AttentionConfig> configs() {
  std::vector<AttentionConfig> list;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    list.push_back({4, 2, 16, dtype, 0, 32, 0.25});
    list.push_back({9, 3, 64, dtype, 0, 32, 0.125});
    list.push_back({6, 6, 80, dtype, 0, 16, 0.11});    // columns of 4 + 1 vectors
    list.push_back({8, 1, 128, dtype, 0, 128, 0.09});  // one kv head, 8 rows a token
    list.push_back({4, 2, 33, dtype, 0, 32, 0.17});    // values padded
    list.push_back({2, 1, 1, dtype, 0, 16, 1.0});
    list.push_back({100, 2, 16, dtype, 0, 32, 0.25});  // a group beyond one tile
    list.push_back({4, 2, 24, dtype, 20, 32, 0.2});    // windows within, at and beyond a partition
    list.push_back({4, 4, 16, dtype, 128, 32, 0.25});
    list.push_back({4, 1, 16, dtype, 150, 32, 0.25});
    list.push_back({4, 2, 16, dtype, 1, 32, 0.25});
  }
  return list;
}

TEST(AttentionKv, MatchesTheInterpreterOnEveryTarget) {
  for (const std::string_view target : usable_targets()) {
    const ForcedTarget forced(target);
    for (const AttentionConfig& config : configs()) {
      AttentionRig rig(config);
      for (const int64_t tokens : {1, 2, 15, 16, 17, 127, 128, 129, 300}) {
        if (tokens == 300 && config.heads > 50) continue;
        SCOPED_TRACE(describe(config) + ", " + std::to_string(tokens) + " tokens, " + std::string(target));
        const SequenceData data = random_sequence(config, tokens, 7);
        const std::vector<double> expected = rig.reference(data);
        ASSERT_LT(largest_error(rig.in_chunks(data, tokens), expected), kTolerance);
        if (tokens > 129) continue;
        ASSERT_LT(largest_error(rig.in_chunks(data, 1), expected), kTolerance);
        EXPECT_NE(rig.variant().find(target), std::string::npos) << rig.variant();
      }
    }
  }
}

TEST(AttentionKv, UniformWeightsGiveTheMeanOfVisibleValues) {
  AttentionConfig config{4, 2, 16, DType::kF32, 0, 32, 0.25};
  for (const int64_t window : {0, 1, 100, 200}) {
    config.window = window;
    AttentionRig rig(config);
    SequenceData data = random_sequence(config, 300, 1);
    std::fill(data.q.begin(), data.q.end(), 0.0f);
    // The value of key j of kv head h is j + 1000 h.
    for (int64_t j = 0; j < 300; ++j) {
      for (int64_t i = 0; i < 32; ++i) {
        data.v[static_cast<size_t>(j * 32 + i)] = static_cast<float>(j + i / 16 * 1000);
      }
    }
    for (const int64_t chunk : {1, 300}) {
      const std::vector<float> out = rig.in_chunks(data, chunk);
      for (int64_t row = 0; row < 300; ++row) {
        const int64_t first = window > 0 ? std::max<int64_t>(0, row + 1 - window) : 0;
        const double mean = static_cast<double>(first + row) / 2;
        for (int64_t head = 0; head < 4; ++head) {
          const double expected = mean + (head < 2 ? 0 : 1000);
          ASSERT_NEAR(out[static_cast<size_t>((row * 4 + head) * 16 + 3)], expected, 2e-4)
              << "row " << row << " head " << head << " window " << window << " chunk " << chunk;
        }
      }
    }
  }
}

TEST(AttentionKv, SharpWeightsPickTheirKey) {
  // Key j is a large multiple of a unit vector where j = 130 alone: every later row attends to it only.
  const AttentionConfig config{2, 1, 8, DType::kF32, 0, 32, 1.0};
  AttentionRig rig(config);
  SequenceData data = random_sequence(config, 280, 5);
  std::fill(data.q.begin(), data.q.end(), 0.0f);
  std::fill(data.k.begin(), data.k.end(), 0.0f);
  for (size_t i = 0; i < data.q.size(); i += 8) data.q[i] = 20.0f;
  data.k[130 * 8] = 10.0f;
  const std::vector<float> out = rig.in_chunks(data, 280);
  for (size_t row = 130; row < 280; ++row) {
    for (size_t i = 0; i < 16; ++i) ASSERT_EQ(out[row * 16 + i], data.v[130 * 8 + i % 8]) << row;
  }
}

TEST(AttentionKv, RoundsKeysAndValuesToTheCacheDtypeForTheirOwnChunkToo) {
  AttentionConfig config{4, 2, 16, DType::kBF16, 0, 32, 0.25};
  SequenceData data = random_sequence(config, 40, 3);
  AttentionRig rig(config);
  const std::vector<float> exact = rig.in_chunks(data, 40);
  // A quarter of a bf16 step away: rounds back to the same cache, truncation would not for half of them.
  for (std::vector<float>* values : {&data.k, &data.v}) {
    for (size_t i = 0; i < values->size(); ++i) (*values)[i] *= i % 2 == 0 ? 1 + 0x1p-10f : 1 - 0x1p-10f;
  }
  EXPECT_TRUE(equal_bits(rig.in_chunks(data, 40), exact));
  EXPECT_TRUE(equal_bits(rig.in_chunks(data, 1), exact));
}

TEST(AttentionKv, WritesNothingForAStepWithoutRows) {
  AttentionRig rig({});
  CachedSequence sequence(rig.layout(), 32);
  const SequenceData data = random_sequence({}, 3, 1);
  EXPECT_TRUE(rig.step({{&sequence, &data, 0}})[0].empty());
  EXPECT_EQ(rig.step({{&sequence, &data, 3}})[0].size(), 3u * 4 * 16);
}

TEST(AttentionKv, AccountsForTheKeysAndValuesOfItsTokens) {
  Graph graph;
  const Dim tokens = Dim::symbol("T", 1);
  Value* q = graph.add_input("q", {DType::kF16, {tokens, Dim(8), Dim(64)}});
  Value* kv = graph.add_input("kv", {DType::kState, {}});
  const Node* node = Builder(graph).node("flash_attention_kv", {q, kv},
                                         {{"slot", int64_t{0}}, {"scale", 0.125}, {"kv_heads", int64_t{2}}});
  EXPECT_EQ(node_bytes(*node).eval({{"T", 100}}), 2 * 100 * (8 + 2 * 2 + 8) * 64);
}

TEST(AttentionKv, RefusesWhatCannotBe) {
  const auto make = [](int64_t heads, Attrs attrs) {
    Graph graph;
    Value* q = graph.add_input("q", {DType::kF32, {Dim(3), Dim(heads), Dim(16)}});
    Value* kv = graph.add_input("kv", {DType::kState, {}});
    Builder(graph).node("flash_attention_kv", {q, kv}, std::move(attrs));
  };
  const Attrs good{{"slot", int64_t{0}}, {"scale", 0.25}, {"kv_heads", int64_t{2}}};
  EXPECT_NO_THROW(make(4, good));
  EXPECT_THROW(make(5, good), Error);  // not a multiple of the kv heads
  Attrs none = good;
  none.set("kv_heads", int64_t{0});
  EXPECT_THROW(make(4, none), Error);
  Attrs backwards = good;
  backwards.set("causal", false);
  EXPECT_THROW(make(4, backwards), Error);
}

}  // namespace
}  // namespace atb::testing
