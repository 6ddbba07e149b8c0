// SPDX-License-Identifier: Apache-2.0
// B09: a softcap bounds the scores after the scale and before the mask, with and without a cache, and a bad one is
// refused.
#include <gtest/gtest.h>

#include <limits>

#include "ops/attention_rig.h"

namespace atb::testing {
namespace {

// Cap 5, scores (10, 8, 9) with the third key masked. V are unit vectors, so that the result is the weights.
constexpr double kFirst = 0.5527517;
constexpr double kSecond = 0.4472483;
constexpr double kTolerance = 2e-7;

OpCase flash(double softcap) {
  const float hidden = -std::numeric_limits<float>::infinity();
  return {.op = "flash_attention",
          .inputs = {activation({1, 1, 1, 3}, {1, 0, 0}), activation({1, 3, 1, 3}, {10, 0, 0, 8, 0, 0, 9, 0, 0}),
                     activation({1, 3, 1, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1}), activation({3}, {0, 0, hidden})},
          .attrs = {{"scale", 1.0}, {"softcap", softcap}}};
}

void expect_weights(const std::vector<float>& out) {
  EXPECT_NEAR(out[0], kFirst, kTolerance);
  EXPECT_NEAR(out[1], kSecond, kTolerance);
  EXPECT_EQ(out[2], 0.0f);
}

TEST(B09Softcap, WithoutACacheOnEveryTarget) {
  for (const std::string_view target : usable_targets()) {
    const ForcedTarget forced(target);
    const OpRun run = run_op(flash(5.0));
    expect_weights(run.kernel[0].f);
    expect_weights(run.f32[0].f);  // the decomposition
    EXPECT_NEAR(run_op(flash(0.0)).kernel[0].f[0], 0.8807971, kTolerance);
  }
}

// The window is the mask here: the first of three keys is out of sight of the last query.
TEST(B09Softcap, WithACache) {
  const AttentionConfig config{.heads = 1, .kv_heads = 1, .head_dim = 3, .window = 2, .scale = 1.0, .softcap = 5.0};
  AttentionRig rig(config);
  const SequenceData data{3, {1, 0, 0, 1, 0, 0, 1, 0, 0}, {9, 0, 0, 10, 0, 0, 8, 0, 0}, {0, 0, 1, 1, 0, 0, 0, 1, 0}};
  const std::vector<double> reference = rig.reference(data);
  EXPECT_NEAR(reference[6], kFirst, kTolerance);
  EXPECT_NEAR(reference[7], kSecond, kTolerance);
  EXPECT_EQ(reference[8], 0.0);
  for (const int64_t chunk : {1, 3}) {
    const std::vector<float> out = rig.in_chunks(data, chunk);
    expect_weights({out.begin() + 6, out.end()});
  }
}

TEST(B09Softcap, BadCapsAreRefused) {
  for (const double softcap :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Graph graph;
    try {
      build_op_graph(graph, flash(softcap));
      ADD_FAILURE() << "accepted " << softcap;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("must be 0 (none) or positive and finite"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace atb::testing
