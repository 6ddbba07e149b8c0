// SPDX-License-Identifier: Apache-2.0
// B60: zero-length sequences and batches give empty or zero results; zero heads are an error, never a crash.
#include <gtest/gtest.h>

#include "ops/attention_rig.h"

namespace atb::testing {
namespace {

OpCase attention(std::vector<int64_t> q, std::vector<int64_t> kv, bool causal = false) {
  const auto tensor = [](std::vector<int64_t> shape) {
    int64_t size = 1;
    for (const int64_t extent : shape) size *= extent;
    return activation(std::move(shape), random_values(size, 1));
  };
  return {.op = "flash_attention",
          .inputs = {tensor(q), tensor(kv), tensor(kv)},
          .attrs = {{"scale", 1.0}, {"causal", causal}}};
}

void expect_zeros(const OpRun& run, const std::vector<int64_t>& shape) {
  ASSERT_EQ(run.kernel.size(), 1u);
  for (const RefTensor<float>& result : {run.kernel[0], run.f32[0]}) {
    EXPECT_EQ(result.shape, shape);
    EXPECT_EQ(static_cast<int64_t>(result.f.size()), result.size());
    for (const float value : result.f) EXPECT_EQ(value, 0.0f);
  }
}

// [batch, heads, 0, 7] in the order of torch is [batch, 0, heads, 7] here.
TEST(B60ZeroSizes, AttentionWithoutQueriesIsEmpty) {
  expect_zeros(run_op(attention({7, 0, 9, 7}, {7, 0, 9, 7})), {7, 0, 9, 7});
  expect_zeros(run_op(attention({7, 0, 9, 7}, {7, 5, 3, 7})), {7, 0, 9, 7});
}

TEST(B60ZeroSizes, AttentionOfNoBatchIsEmpty) {
  expect_zeros(run_op(attention({0, 3, 4, 8}, {0, 3, 2, 8}, true)), {0, 3, 4, 8});
}

TEST(B60ZeroSizes, AttentionWithoutKeysIsZero) {
  expect_zeros(run_op(attention({1, 2, 4, 8}, {1, 0, 2, 8})), {1, 2, 4, 8});
  expect_zeros(run_op(attention({1, 2, 4, 8}, {1, 0, 2, 8}, true)), {1, 2, 4, 8});
}

TEST(B60ZeroSizes, ZeroHeadsAreAClearError) {
  const std::vector<OpCase> bad = {attention({7, 9, 0, 7}, {7, 7, 0, 7}), attention({1, 2, 4, 8}, {1, 2, 0, 8})};
  for (const OpCase& test : bad) {
    Graph graph;
    try {
      build_op_graph(graph, test);
      FAIL() << "accepted 0 kv heads";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("0 kv heads"), std::string::npos) << error.what();
    }
  }
}

TEST(B60ZeroSizes, LinearOfNoRowsIsEmpty) {
  const OpRun run =
      run_op({.op = "linear", .inputs = {activation({0, 16}, {}), weight({8, 16}, random_values(128, 1))}});
  expect_zeros(run, {0, 8});
}

TEST(B60ZeroSizes, ACachedStepMayHaveSequencesWithoutRows) {
  const AttentionConfig config;
  AttentionRig rig(config);
  const SequenceData data = random_sequence(config, 20, 1);
  CachedSequence first(rig.layout(), 32), second(rig.layout(), 32), alone(rig.layout(), 32);
  const auto results = rig.step({{&first, &data, 0}, {&second, &data, 20}});
  EXPECT_TRUE(results[0].empty());
  EXPECT_TRUE(equal_bits(results[1], rig.step({{&alone, &data, 20}})[0]));
  EXPECT_TRUE(rig.step({}).empty());
}

}  // namespace
}  // namespace atb::testing
