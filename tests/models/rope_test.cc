// SPDX-License-Identifier: Apache-2.0
// Rope frequencies against values computed by transformers 5.24 (LlamaRotaryEmbedding, f32).
#include "models/load/rope.h"

#include <gtest/gtest.h>

#include "frontends/file_writers.h"

namespace atb {
namespace {

RopeConfig rope_of(const std::string& json, int64_t head_dim = 16, int64_t context = 64) {
  return rope_from_hf(ConfigJson::parse(json), head_dim, context);
}

TEST(Rope, DefaultFrequencies) {
  const std::vector<float> got = rope_frequencies(rope_of(R"({"rope_theta": 10000.0})", 8));
  EXPECT_EQ(got, (std::vector<float>{1.0f, 0.1f, 0.01f, 0.001f}));
}

TEST(Rope, Llama3FrequenciesAreThoseOfTransformers) {
  const RopeConfig rope = rope_of(R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 32.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})",
                                  64);
  const std::vector<float> got = rope_frequencies(rope);
  const float expected[] = {1.00000000e+00f, 6.63601279e-01f, 4.40366626e-01f, 2.92227834e-01f, 1.93922758e-01f,
                            1.28687382e-01f, 8.53971019e-02f, 5.66696189e-02f, 3.76060307e-02f, 2.49554086e-02f,
                            1.65604409e-02f, 1.09895291e-02f, 7.29266508e-03f, 4.83942125e-03f, 3.21144611e-03f,
                            1.29054801e-03f, 4.29556705e-04f, 9.70828623e-05f, 1.94616387e-05f, 1.29147675e-05f};
  ASSERT_EQ(got.size(), 32u);
  for (size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(got[i], expected[i]) << "pair " << i;
}

TEST(Rope, DivisorsDivide) {
  RopeConfig rope;
  rope.rotary_dim = 4;
  rope.frequency_divisors = {2.0f, 4.0f};
  EXPECT_EQ(rope_frequencies(rope), (std::vector<float>{0.5f, 0.0025f}));
}

TEST(Rope, ThetaInsideTheObjectWins) {
  EXPECT_EQ(rope_of(R"({"rope_theta": 5.0, "rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}})").theta,
            7.0);
  EXPECT_EQ(rope_of(R"({"rope_parameters": {"rope_theta": 7.0}})").theta, 7.0);
  EXPECT_EQ(rope_of(R"({"rope_theta": 5.0, "rope_scaling": null})").theta, 5.0);
}

TEST(Rope, UnknownOrHalfGivenScalingIsRefused) {
  for (const char* type : {"linear", "dynamic", "yarn", "longrope", "nonsense", ""}) {
    const std::string json = std::string(R"({"rope_scaling": {"rope_type": ")") + type + R"(", "factor": 2.0}})";
    EXPECT_ATB_ERROR(rope_of(json), Code::kUnsupported, "rope_scaling.rope_type", type, "llama3");
  }
  EXPECT_ATB_ERROR(rope_of(R"({"rope_scaling": {"factor": 2.0}})"), Code::kInvalidArgument, "rope_type");
  EXPECT_ATB_ERROR(rope_of(R"({"rope_parameters": {"full_attention": {"rope_theta": 7.0}}})"), Code::kInvalidArgument,
                   "rope_parameters.rope_type");
  EXPECT_ATB_ERROR(rope_of(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}})"), Code::kInvalidArgument,
                   "rope_scaling.low_freq_factor", "missing");
  EXPECT_ATB_ERROR(rope_of(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
                               "high_freq_factor": 4.0}})"),
                   Code::kInvalidArgument, "high_freq_factor");
}

}  // namespace
}  // namespace atb
