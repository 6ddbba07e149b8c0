// SPDX-License-Identifier: Apache-2.0
// B01: llama3 frequency scaling parsed but not used, or only one spelling of its type read.
#include <gtest/gtest.h>

#include "core/error.h"
#include "models/load/rope.h"

namespace atb {
namespace {

const std::string kSmall = R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                              "original_max_position_embeddings": 64)";

std::vector<float> frequencies(const std::string& json, int64_t head_dim) {
  return rope_frequencies(rope_from_hf(ConfigJson::parse(json), head_dim, 1 << 20));
}

void expect_close(float got, double expected, size_t pair) {
  // The row's values are f64; ours are rounded to f32 at each step, as the reference implementation's are.
  EXPECT_NEAR(got, expected, 1e-6 * expected) << "pair " << pair;
}

TEST(B01, LargeCase) {
  const std::string scaled = R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 32.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})";
  const auto got = frequencies(scaled, 64);
  const auto plain = frequencies(R"({"rope_theta": 500000.0})", 64);
  for (size_t i = 0; i <= 14; ++i) EXPECT_EQ(got[i], plain[i]) << "pair " << i;
  expect_close(got[15], 1.2905479e-3, 15);
  expect_close(got[16], 4.2955680e-4, 16);
  expect_close(got[17], 9.7082878e-5, 17);
  for (size_t i = 18; i < 32; ++i) EXPECT_EQ(got[i], plain[i] / 32.0f) << "pair " << i;
}

TEST(B01, EverySpellingGivesTheSame) {
  const std::string spellings[] = {
      R"({"rope_theta": 10000.0, "rope_scaling": {"type": "llama3", )" + kSmall + "}}",
      R"({"rope_theta": 10000.0, "rope_scaling": {"rope_type": "llama3", )" + kSmall + "}}",
      R"({"rope_parameters": {"rope_theta": 10000.0, "rope_type": "llama3", )" + kSmall + "}}",
      R"({"rope_parameters": {"rope_theta": 10000.0, "type": "llama3", )" + kSmall + "}}",
  };
  for (const std::string& json : spellings) {
    const auto got = frequencies(json, 16);
    const double expected[] = {1.0, 0.24438460, 0.013042256, 0.0039528471, 0.00125};
    for (size_t i = 0; i < std::size(expected); ++i) expect_close(got[i], expected[i], i);
    EXPECT_EQ(got, frequencies(spellings[0], 16));
  }
}

TEST(B01, UnknownTypeIsAnErrorNeverDefault) {
  for (const char* key : {"type", "rope_type"}) {
    try {
      frequencies(std::string(R"({"rope_scaling": {")") + key + R"(": "llama4", )" + kSmall + "}}", 16);
      FAIL() << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kUnsupported);
      EXPECT_NE(std::string(error.what()).find("llama4"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace atb
