// SPDX-License-Identifier: Apache-2.0
// One fuzz target without a fuzzer: its seeds, and mutations of them drawn with a fixed seed. Findings of the real
// fuzzer get a test of their own; this keeps the targets and their invariants alive in every run of the tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "fuzz/target.h"

namespace atb::fuzz {
namespace {

constexpr int kMutations = 2000;

size_t below(std::mt19937_64& random, size_t limit) { return limit == 0 ? 0 : random() % limit; }

// Numbers that parsers get wrong.
void put_number(std::string& text, std::mt19937_64& random) {
  constexpr uint64_t kNumbers[] = {0, 1, 0x7f, 0xff, 0x7fffffff, 0xffffffff, uint64_t{1} << 63, ~uint64_t{0}};
  const uint64_t number = kNumbers[below(random, std::size(kNumbers))];
  const size_t width = size_t{1} << below(random, 4);
  if (text.size() < width) return;
  std::memcpy(text.data() + below(random, text.size() - width + 1), &number, width);
}

void mutate(std::string& text, const std::string& other, std::mt19937_64& random) {
  const size_t at = below(random, text.size() + 1);
  switch (below(random, 6)) {
    case 0:
      if (!text.empty()) text[below(random, text.size())] ^= static_cast<char>(1 << below(random, 8));
      return;
    case 1:
      return put_number(text, random);
    case 2:
      text.resize(at);
      return;
    case 3:
      text.insert(at, 1, static_cast<char>(random()));
      return;
    case 4:
      text.erase(at, below(random, 9));
      return;
    default: {  // a piece of another seed
      const size_t begin = below(random, other.size() + 1);
      text.insert(at, other, begin, below(random, 33));
    }
  }
}

TEST(Replay, Seeds) {
  ASSERT_FALSE(seeds().empty());
  for (const std::string& seed : seeds()) run(seed);
}

TEST(Replay, Mutations) {
  const std::vector<std::string> from = seeds();
  std::mt19937_64 random(20261130);
  for (int i = 0; i < kMutations; ++i) {
    std::string text = from[below(random, from.size())];
    const size_t steps = 1 + below(random, 4);
    for (size_t step = 0; step < steps; ++step) mutate(text, from[below(random, from.size())], random);
    run(text);
  }
}

TEST(Replay, EveryStartOfTheFirstSeed) {
  const std::string seed = seeds().front();
  const size_t stride = std::max<size_t>(1, seed.size() / 500);
  for (size_t size = 0; size < seed.size(); size += stride) run(std::string_view(seed).substr(0, size));
}

}  // namespace
}  // namespace atb::fuzz
