// SPDX-License-Identifier: Apache-2.0
// Attention without a cache against its decomposition in f64, on every instruction set.
#include <gtest/gtest.h>

#include "ops/attention_rig.h"

namespace atb::testing {
namespace {

struct FlashCase {
  int64_t batch, tokens, heads, head_dim, keys, kv_heads;
  bool causal;
  int64_t window;
  std::vector<int64_t> mask;  // shape; empty: none
};

OpCase make_case(const FlashCase& c) {
  OpCase test{
      .op = "flash_attention",
      .inputs = {activation({c.batch, c.tokens, c.heads, c.head_dim},
                            random_values(c.batch * c.tokens * c.heads * c.head_dim, 1, 3)),
                 activation({c.batch, c.keys, c.kv_heads, c.head_dim},
                            random_values(c.batch * c.keys * c.kv_heads * c.head_dim, 2, 3)),
                 activation({c.batch, c.keys, c.kv_heads, c.head_dim},
                            random_values(c.batch * c.keys * c.kv_heads * c.head_dim, 3))},
      .attrs = {{"scale", 1 / std::sqrt(static_cast<double>(c.head_dim))}, {"causal", c.causal}, {"window", c.window}}};
  if (c.mask.empty()) return test;
  int64_t size = 1;
  for (const int64_t extent : c.mask) size *= extent;
  std::vector<float> mask = random_values(size, 4);
  // Hide some keys, and one row altogether.
  for (size_t i = 0; i < mask.size(); i += 5) mask[i] = -std::numeric_limits<float>::infinity();
  std::fill_n(mask.begin(), c.mask.back(), -std::numeric_limits<float>::infinity());
  test.inputs.push_back(activation(c.mask, mask));
  return test;
}

std::vector<FlashCase> cases() {
  return {{1, 1, 1, 8, 1, 1, false, 0, {}},
          {2, 5, 4, 16, 5, 2, true, 0, {}},
          {2, 5, 4, 16, 9, 2, true, 0, {}},  // queries are the last five
          {1, 9, 2, 16, 4, 1, true, 0, {}},  // the first five see nothing
          {1, 40, 6, 64, 300, 3, true, 0, {}},
          {1, 300, 3, 33, 300, 1, true, 0, {}},
          {1, 140, 2, 80, 270, 2, false, 0, {}},
          {1, 150, 2, 16, 150, 2, true, 20, {}},
          {1, 150, 2, 16, 150, 2, false, 130, {}},
          {2, 20, 4, 16, 150, 2, false, 0, {20, 150}},
          {2, 20, 4, 16, 150, 2, false, 0, {2, 1, 20, 150}},
          {2, 20, 4, 16, 150, 2, true, 0, {2, 4, 20, 150}},
          {2, 20, 4, 16, 150, 2, false, 0, {4, 1, 150}},
          {2, 20, 4, 16, 37, 2, false, 0, {37}}};
}

TEST(FlashAttention, MatchesItsDecompositionOnEveryTarget) {
  for (const std::string_view target : usable_targets()) {
    const ForcedTarget forced(target);
    int index = 0;
    for (const FlashCase& c : cases()) {
      SCOPED_TRACE("case " + std::to_string(index++) + " on " + std::string(target));
      OpCase test = make_case(c);
      test.misalign = 4;
      const OpRun run = run_op(test);
      ASSERT_EQ(run.kernel.size(), 1u);
      EXPECT_LT(max_error(run.kernel[0], run.f64[0]), 3e-6);
    }
  }
}

TEST(FlashAttention, GivesTheBitsOfTheCachedOne) {
  const AttentionConfig config{6, 2, 48, DType::kF32, 0, 32, 0.3};
  AttentionRig rig(config);
  const SequenceData data = random_sequence(config, 200, 5);
  const OpRun run = run_op({.op = "flash_attention",
                            .inputs = {activation({1, 200, 6, 48}, data.q), activation({1, 200, 2, 48}, data.k),
                                       activation({1, 200, 2, 48}, data.v)},
                            .attrs = {{"scale", 0.3}, {"causal", true}}});
  EXPECT_TRUE(equal_bits(run.kernel[0].f, rig.in_chunks(data, 200)));
}

TEST(FlashAttention, RefusesWhatCannotBe) {
  Graph graph;
  EXPECT_THROW(build_op_graph(graph, make_case({1, 2, 4, 8, 2, 3, true, 0, {}})), Error);
  EXPECT_THROW(build_op_graph(graph, make_case({1, 2, 4, 8, 2, 2, true, -1, {}})), Error);
  EXPECT_THROW(build_op_graph(graph, make_case({1, 2, 4, 8, 2, 2, true, 0, {3, 2}})), Error);
}

}  // namespace
}  // namespace atb::testing
