// SPDX-License-Identifier: Apache-2.0
// Sampling: generator against published vectors, filters on worked examples (B41), independence, broken logits.
#include "runtime/generate/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "core/error.h"
#include "runtime/generate/philox.h"

namespace atb {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string error_text(Code code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

// Known answers of philox4x32-10, from the kat_vectors of the authors' Random123 distribution.
TEST(Philox, KnownAnswers) {
  using Four = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}), (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformCoversTheUnitIntervalAndStreamsDiffer) {
  double sum = 0, low = 1, high = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    const double u = uniform(1, 2, i);
    sum += u;
    low = std::min(low, u);
    high = std::max(high, u);
  }
  EXPECT_GE(low, 0.0);
  EXPECT_LT(high, 1.0);
  EXPECT_NEAR(sum / 10000, 0.5, 0.015);  // five standard deviations
  EXPECT_NE(uniform(1, 2, 3), uniform(1, 3, 3));
  EXPECT_NE(uniform(1, 2, 3), uniform(2, 2, 3));
  EXPECT_NE(uniform(1, 2, 3), uniform(uint64_t{1} << 32 | 1, 2, 3));  // all 64 bits of the seed count
  EXPECT_NE(uniform(1, 2, 3), uniform(1, 2, uint64_t{1} << 32 | 3));
}

TEST(Argmax, LowestIndexOnTies) {
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(argmax(std::vector<float>{-kInf, -5}), 1);
  EXPECT_EQ(argmax(std::vector<float>{-0.0f, 0.0f}), 0);
  EXPECT_EQ(argmax(std::vector<float>{1, kInf}), 1);
}

TEST(Argmax, FindsTheLargestAtEveryPlaceAndLength) {
  for (size_t size = 1; size <= 50; ++size) {
    for (size_t place = 0; place < size; ++place) {
      std::vector<float> logits(size, -1.0f);
      logits[place] = 0.5f;
      ASSERT_EQ(argmax(logits), static_cast<int32_t>(place));
      logits[place] = kNan;
      EXPECT_THROW(argmax(logits), Error);
    }
  }
}

TEST(Argmax, BrokenLogitsAreNamed) {
  for (const std::vector<float>& logits : {std::vector<float>{kNan, 1, 2}, {5, 1, kNan}, {kInf, kNan}}) {
    EXPECT_NE(error_text(Code::kDataLoss, [&] { argmax(logits); }).find("is NaN"), std::string::npos);
  }
  error_text(Code::kDataLoss, [] { argmax(std::vector<float>{-kInf, -kInf}); });
  error_text(Code::kDataLoss, [] { argmax({}); });
}

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

size_t kept(int64_t top_k, double top_p, const std::vector<float>& logits) {
  return Sampler({.temperature = 1, .top_k = top_k, .top_p = top_p}).distribution(logits).size();
}

// Public fault B41: tiny or zero top_p masked every token; top_k 0, -1 or above the vocabulary crashed.
TEST(Sampling, FiltersOnAWorkedExample) {
  const auto logits = logits_of({0.3, 0.4, 0.1, 0.2});
  EXPECT_EQ(kept(0, 0.5, logits), 2u);
  EXPECT_EQ(kept(0, 0.0, logits), 1u);
  EXPECT_EQ(kept(0, 1e-8, logits), 1u);
  EXPECT_EQ(kept(0, 1.0, logits), 4u);
  for (int64_t top_k : {0, -1, 4, 50}) EXPECT_EQ(kept(top_k, 1.0, logits), 4u) << top_k;
  EXPECT_EQ(kept(1, 1.0, logits), 1u);
  EXPECT_EQ(kept(3, 0.5, logits), 2u);  // of 0.9 in all: 0.4 / 0.9 does not reach half, 0.7 / 0.9 does
  const auto kept_two = Sampler({.temperature = 1, .top_p = 0.5}).distribution(logits);
  EXPECT_EQ(kept_two[0].first, 1);
  EXPECT_EQ(kept_two[1].first, 0);
  EXPECT_NEAR(kept_two[0].second, 4.0 / 7, 1e-6);
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(Sampler({.temperature = 1, .top_p = 0, .seed = i}).sample(logits, 0), 1);
    EXPECT_EQ(Sampler({.temperature = 1, .top_k = 1, .seed = i}).sample(logits, 0), 1);
  }
}

TEST(Sampling, BadParametersAreNamed) {
  const auto refused = [](const SamplingParams& params, const char* field) {
    EXPECT_NE(error_text(Code::kInvalidArgument, [&] { validate(params, 128); }).find(field), std::string::npos);
  };
  const double nan = std::nan("");
  for (double t : {-0.1, nan, HUGE_VAL}) refused({.temperature = t}, "temperature");
  for (double p : {1.5, -0.1, nan}) refused({.top_p = p}, "top_p");
  refused({.top_k = -2}, "top_k");
  refused({.max_new_tokens = -1}, "max_new_tokens");
  refused({.stop_token_ids = {0, 151645}}, "151645");
  refused({.stop_token_ids = {-1}}, "stop_token_ids");
  EXPECT_NO_THROW(validate({.temperature = 2, .top_k = 1000, .top_p = 0, .stop_token_ids = {0, 127}}, 128));
  EXPECT_NO_THROW(validate({}, 128));
}

TEST(Sampling, EqualLogitsAreKeptInOrderOfId) {
  const std::vector<float> logits(1000, 2.5f);
  const auto first = Sampler({.temperature = 1, .top_k = 3}).distribution(logits);
  ASSERT_EQ(first.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(first[static_cast<size_t>(i)].first, i);
}

// The partial orders that the filters use give what a full sort gives, at all sizes where they change strategy.
TEST(Sampling, FiltersAgreeWithAFullSort) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(5000);
  for (float& x : logits) x = std::round(normal(random) * 64) / 64;  // many ties
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  for (const int64_t top_k : {0, 1, 50, 256, 257, 4999}) {
    for (const double top_p : {0.01, 0.3, 0.9, 0.9999, 1.0}) {
      Sampler sampler({.temperature = 1.3, .top_k = top_k, .top_p = top_p});
      const auto got = sampler.distribution(logits);
      const size_t pool = top_k == 0 ? order.size() : static_cast<size_t>(top_k);
      double total = 0, sum = 0;
      for (size_t i = 0; i < pool; ++i) total += std::exp(logits[static_cast<size_t>(order[i])] / 1.3);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].first, order[i]);
        if (i + 1 < got.size()) sum += std::exp(logits[static_cast<size_t>(order[i])] / 1.3) / total;
      }
      const double last = std::exp(logits[static_cast<size_t>(order[got.size() - 1])] / 1.3) / total;
      EXPECT_LT(sum, top_p + 1e-9);
      EXPECT_GE(sum + last, top_p - 1e-9);
    }
  }
}

TEST(Sampling, FrequenciesFollowTheDistribution) {
  const std::vector<double> p = {0.5, 0.25, 0.15, 0.1};
  const auto logits = logits_of(p);
  Sampler sampler({.temperature = 1, .seed = 5});
  std::vector<int> counts(4);
  for (uint64_t i = 0; i < 20000; ++i) ++counts[static_cast<size_t>(sampler.sample(logits, i))];
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(counts[i] / 20000.0, p[i], 5 * std::sqrt(p[i] * (1 - p[i]) / 20000));
  }
}

TEST(Sampling, AChoiceDependsOnlyOnItsOwnInputs) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> a(300), b(7000);
  for (float& x : a) x = normal(random);
  for (float& x : b) x = normal(random);
  for (const SamplingParams& params : {SamplingParams{.temperature = 1, .seed = 9},
                                       SamplingParams{.temperature = 0.7, .top_k = 40, .top_p = 0.9, .seed = 9}}) {
    Sampler alone(params, 4), mixed(params, 4);
    std::vector<int32_t> forward, backward;
    for (uint64_t i = 0; i < 20; ++i) forward.push_back(alone.sample(a, i));
    for (uint64_t i = 20; i-- > 0;) {
      mixed.sample(b, i);  // other calls between change nothing
      backward.insert(backward.begin(), mixed.sample(a, i));
    }
    EXPECT_EQ(forward, backward);
    Sampler other(params, 5);
    std::vector<int32_t> differs;
    for (uint64_t i = 0; i < 20; ++i) differs.push_back(other.sample(a, i));
    EXPECT_NE(forward, differs);
  }
}

TEST(Sampling, ExtremeLogitsAndTemperatures) {
  const std::vector<float> logits = {-kInf, 3e38f, -3e38f, 2.9e38f, -kInf};
  for (const double t : {1e-300, 1e-5, 1.0, 1e30, 1e300}) {
    for (uint64_t i = 0; i < 100; ++i) {
      const int32_t token = Sampler({.temperature = t, .seed = i}).sample(logits, 0);
      EXPECT_TRUE(token >= 1 && token <= 3) << token;  // a masked token is never chosen
      if (t <= 1) {
        EXPECT_EQ(token, 1);
      }
    }
  }
  Sampler sampler({.temperature = 1});
  error_text(Code::kDataLoss, [&] { sampler.sample(std::vector<float>{0, kInf}, 0); });
  error_text(Code::kDataLoss, [&] { sampler.sample(std::vector<float>{0, kNan}, 0); });
  error_text(Code::kDataLoss, [&] { sampler.sample(std::vector<float>{-kInf}, 0); });
}

}  // namespace
}  // namespace atb
