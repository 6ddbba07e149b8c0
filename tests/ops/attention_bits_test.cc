// SPDX-License-Identifier: Apache-2.0
// The promise: an attention row has the same bits whatever the chunking, the neighbours and the split of the work.
#include <gtest/gtest.h>

#include <set>

#include "ops/attention_rig.h"

namespace atb::testing {
namespace {

std::vector<AttentionConfig> configs() {
  return {{9, 3, 64, DType::kF32, 0, 32, 0.125},  {9, 3, 64, DType::kBF16, 0, 32, 0.125},
          {4, 4, 33, DType::kF32, 0, 16, 0.2},    {4, 4, 33, DType::kBF16, 0, 16, 0.2},
          {8, 1, 48, DType::kBF16, 0, 128, 0.15}, {6, 2, 32, DType::kF32, 70, 32, 0.17},
          {5, 5, 16, DType::kF32, 128, 64, 0.25}, {2, 2, 128, DType::kF32, 0, 32, 0.09}};
}

TEST(AttentionBits, DoNotDependOnTheChunking) {
  for (const std::string_view target : usable_targets()) {
    const ForcedTarget forced(target);
    for (const AttentionConfig& config : configs()) {
      AttentionRig rig(config);
      const SequenceData data = random_sequence(config, 333, 11);
      const std::vector<float> whole = rig.in_chunks(data, 333);
      std::set<std::string> variants{rig.variant()};
      for (const int64_t chunk : {1, 7, 8, 9, 64, 200}) {
        ASSERT_TRUE(equal_bits(rig.in_chunks(data, chunk), whole))
            << "chunks of " << chunk << ", head_dim " << config.head_dim << ", window " << config.window << ", "
            << dtype_name(config.dtype) << ", " << target;
        if (chunk <= 7) variants.insert(rig.variant());
      }
      EXPECT_GE(variants.size(), 2u) << "the same code ran for one row and for many";
    }
  }
}

TEST(AttentionBits, DoNotDependOnTheOrderOfUnits) {
  for (const AttentionConfig& config : configs()) {
    AttentionRig rig(config);
    const SequenceData data = random_sequence(config, 200, 13);
    for (const int64_t chunk : {1, 90}) {
      ASSERT_TRUE(equal_bits(rig.in_chunks(data, chunk, true), rig.in_chunks(data, chunk, false)));
    }
  }
}

TEST(AttentionBits, DoNotDependOnTheOtherSequencesOfTheStep) {
  for (const AttentionConfig& config : configs()) {
    AttentionRig rig(config);
    // Lengths before the step, and its rows: decode, prefill, the few rows between, and a first token.
    const std::vector<int64_t> past = {300, 0, 129, 40, 0};
    const std::vector<int64_t> rows = {1, 150, 6, 33, 1};
    std::vector<SequenceData> data;
    std::vector<std::vector<float>> alone;
    std::vector<CachedSequence> together;
    for (size_t i = 0; i < past.size(); ++i) {
      data.push_back(random_sequence(config, past[i] + rows[i], static_cast<uint32_t>(100 + i)));
      CachedSequence sequence(rig.layout(), data[i].tokens);
      together.emplace_back(rig.layout(), data[i].tokens);
      if (past[i] > 0) {
        rig.step({{&sequence, &data[i], past[i]}});
        rig.step({{&together[i], &data[i], past[i]}});
      }
      alone.push_back(rig.step({{&sequence, &data[i], rows[i]}})[0]);
    }
    std::vector<AttentionRig::Part> parts;
    for (size_t i = 0; i < past.size(); ++i) parts.push_back({&together[i], &data[i], rows[i]});
    const auto results = rig.step(parts, true);
    EXPECT_NE(rig.variant().find("mixed"), std::string::npos) << rig.variant();
    for (size_t i = 0; i < past.size(); ++i) EXPECT_TRUE(equal_bits(results[i], alone[i])) << "sequence " << i;
  }
}

TEST(AttentionBits, AnInfiniteValueStaysWithTheRowsThatSeeIt) {
  const AttentionConfig config{6, 2, 32, DType::kF32, 0, 32, 0.17};
  AttentionRig rig(config);
  SequenceData data = random_sequence(config, 140, 17);
  const std::vector<float> clean = rig.in_chunks(data, 140);
  data.v[static_cast<size_t>(70 * 2 * 32)] = std::numeric_limits<float>::infinity();
  const std::vector<float> out = rig.in_chunks(data, 140);
  const size_t width = 6 * 32;
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 70 * width, clean.begin()));
  EXPECT_TRUE(std::isinf(out[70 * width]));
  EXPECT_TRUE(equal_bits(rig.in_chunks(data, 1), out));
}

}  // namespace
}  // namespace atb::testing
