// SPDX-License-Identifier: Apache-2.0
// B07: the second chunk of a cached prefill sees all keys before it: the causal mask is aligned to the last key, not to
// the first. (The other half of the fault, a causal attention imported from PyTorch, is tested with the importer.)
#include <gtest/gtest.h>

#include "ops/attention_rig.h"
#include "runtime/generate/engine.h"
#include "runtime/step_fixture.h"

namespace atb::testing {
namespace {

// With q = 0 every visible key weighs the same, so a row is the mean of the values 0, 1, ... that it sees.
TEST(B07CausalCorner, TheSecondChunkSeesTheKeysOfTheFirst) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const AttentionConfig config{2, 1, 16, dtype, 0, 32, 0.25};
    SequenceData data = random_sequence(config, 5, 1);
    std::fill(data.q.begin(), data.q.end(), 0.0f);
    for (size_t i = 0; i < data.v.size(); ++i) data.v[i] = static_cast<float>(i / 16);
    AttentionRig rig(config);
    CachedSequence sequence(rig.layout(), 5);
    const std::vector<float> first = rig.step({{&sequence, &data, 3}})[0];
    const std::vector<float> second = rig.step({{&sequence, &data, 2}})[0];
    const size_t row = 2 * 16;
    for (size_t i = 0; i < row; ++i) {
      EXPECT_FLOAT_EQ(first[i], 0.0f);
      EXPECT_FLOAT_EQ(first[row + i], 0.5f);
      EXPECT_FLOAT_EQ(first[2 * row + i], 1.0f);
      EXPECT_FLOAT_EQ(second[i], 1.5f);
      EXPECT_FLOAT_EQ(second[row + i], 2.0f);
    }
  }
}

// The uncached operator on queries that are the last of the keys.
TEST(B07CausalCorner, FewerQueriesThanKeysAreTheLastOnes) {
  std::vector<float> values(5 * 16);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / 16);
  const OpRun run =
      run_op({.op = "flash_attention",
              .inputs = {activation({1, 2, 1, 16}, std::vector<float>(2 * 16, 0.0f)),
                         activation({1, 5, 1, 16}, random_values(5 * 16, 1)), activation({1, 5, 1, 16}, values)},
              .attrs = {{"scale", 0.25}, {"causal", true}}});
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_FLOAT_EQ(run.kernel[0].f[i], 1.5f);
    EXPECT_FLOAT_EQ(run.kernel[0].f[16 + i], 2.0f);
    EXPECT_FLOAT_EQ(run.f32[0].f[i], 1.5f);
  }
}

std::vector<float> logits_in_chunks(int64_t chunk, Precision precision) {
  EngineOptions options;
  options.session.threads = 2;
  options.session.precision = precision;
  options.context_length = 64;
  options.prefill_chunk = chunk;
  Engine engine(test::step_graph(), find_device("cpu"), options);
  std::vector<float> all;
  engine.logits({test::some_ids(40, 3)}, [&](int64_t, int64_t, int64_t rows, const float* values) {
    all.insert(all.end(), values, values + rows * engine.vocab());
  });
  return all;
}

TEST(B07CausalCorner, PrefillInChunksGivesEqualLogits) {
  for (const Precision precision : {Precision::kExact, Precision::kFast}) {
    const std::vector<float> whole = logits_in_chunks(64, precision);
    ASSERT_FALSE(whole.empty());
    EXPECT_TRUE(equal_bits(logits_in_chunks(1, precision), whole));
    EXPECT_TRUE(equal_bits(logits_in_chunks(3, precision), whole));
  }
}

}  // namespace
}  // namespace atb::testing
