// SPDX-License-Identifier: Apache-2.0
// B08: with grouped heads each kv head serves a run of neighbouring query heads (0, 0, 1, 1), not every other one.
#include <gtest/gtest.h>

#include "ops/attention_rig.h"

namespace atb::testing {
namespace {

// Hq 4, Hkv 2, q = 0, V of head 0 is 1, of head 1 is 2: the heads give 1, 1, 2, 2.
const std::vector<float> kExpected = {1, 1, 2, 2};

TEST(B08GqaRepeat, WithoutACache) {
  const OpRun run =
      run_op({.op = "flash_attention",
              .inputs = {activation({1, 1, 4, 1}, {0, 0, 0, 0}), activation({1, 3, 2, 1}, random_values(6, 1)),
                         activation({1, 3, 2, 1}, {1, 2, 1, 2, 1, 2})},
              .attrs = {{"scale", 1.0}}});
  EXPECT_EQ(run.kernel[0].f, kExpected);
  EXPECT_EQ(run.f32[0].f, kExpected);
}

TEST(B08GqaRepeat, WithACache) {
  const AttentionConfig config{4, 2, 1, DType::kF32, 0, 16, 1.0};
  AttentionRig rig(config);
  const SequenceData data{3, std::vector<float>(12, 0.0f), random_values(6, 1), {1, 2, 1, 2, 1, 2}};
  const std::vector<double> reference = rig.reference(data);
  for (const int64_t chunk : {1, 3}) {
    const std::vector<float> out = rig.in_chunks(data, chunk);
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(out[i], kExpected[i % 4]);
      EXPECT_EQ(reference[i], kExpected[i % 4]);
    }
  }
}

TEST(B08GqaRepeat, HeadsThatDoNotDivideAreAClearError) {
  Graph graph;
  try {
    build_op_graph(
        graph, {.op = "flash_attention",
                .inputs = {activation({1, 1, 4, 1}, random_values(4, 1)), activation({1, 2, 3, 1}, random_values(6, 2)),
                           activation({1, 2, 3, 1}, random_values(6, 3))},
                .attrs = {{"scale", 1.0}}});
    FAIL() << "accepted 4 query heads over 3 kv heads";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("4 query heads are not a multiple of 3 kv heads"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace atb::testing
