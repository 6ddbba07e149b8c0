// SPDX-License-Identifier: Apache-2.0
// Random graphs in every run of the tests: a first part of the seeds of `make fuzz`, and the generator and the checks
// themselves.
#include <gtest/gtest.h>

#include <memory>
#include <string_view>

#include "fuzz/random_graphs/explain.h"
#include "fuzz/random_graphs/shrink.h"
#include "ir/text.h"
#include "passes/dce.h"

namespace atb::random_graphs {
namespace {

constexpr uint64_t kSeeds = 200;

TEST(RandomGraphs, OptimizedAndCompiledGiveTheNumbersOfThePlainGraph) {
  Counts counts;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RandomGraph random = generate(seed);
    const std::optional<Failure> failure = check(random, &counts);
    if (failure) ADD_FAILURE() << explain(random, *failure);
  }
  for (const PlantKind& kind : plant_kinds()) EXPECT_GE(counts.fired[kind.pattern], 10) << kind.pattern;
}

TEST(RandomGraphs, ASeedAlwaysGivesTheSameGraphAndNumbers) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const RandomGraph first = generate(seed);
    const RandomGraph second = generate(seed);
    EXPECT_EQ(print(*first.graph), print(*second.graph));
    for (const auto& [name, tensor] : first.inputs) EXPECT_EQ(tensor.f, second.inputs.at(name).f);
  }
  EXPECT_NE(print(*generate(1).graph), print(*generate(2).graph));
}

TEST(RandomGraphs, EveryFlawOfEveryPatternIsToldApart) {
  for (const PlantKind& kind : plant_kinds()) {
    for (const std::string& flaw : kind.flaws) {
      for (uint64_t seed = 0; seed < 4; ++seed) {
        RandomGraph random = generate_plant(seed, kind, flaw);
        ASSERT_EQ(random.plants.size(), 1U) << kind.pattern << ": " << flaw;
        const std::optional<Failure> failure = check(random);
        if (failure) ADD_FAILURE() << explain(random, *failure);
      }
    }
  }
}

// FNV-1a of what seeds give: graphs as text, and their inputs.
uint64_t fingerprint(uint64_t seeds) {
  uint64_t hash = 0xCBF29CE484222325ull;
  const auto add = [&](std::string_view bytes) {
    for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  };
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const RandomGraph random = generate(seed);
    add(print(*random.graph));
    for (const auto& [name, tensor] : random.inputs) {
      add({reinterpret_cast<const char*>(tensor.f.data()), tensor.f.size() * sizeof(double)});
    }
  }
  return hash;
}

// A seed in a report is of use to whoever has another compiler: g++ and clang++ gave this number. It changes with the
// generator (a new operator, say); where it changes without, two draws of one expression have no order (prng.h).
TEST(RandomGraphs, ASeedGivesTheSameGraphWithEveryCompiler) { EXPECT_EQ(fingerprint(100), 2372689444887326492ull); }

// A defect that is in no pass: whoever calls softmax with silu in the same graph, and for something that is returned.
bool has_both(const Graph& graph, const Inputs& inputs) {
  interpret<double>(graph, inputs);  // must be a graph that runs
  const std::unique_ptr<Graph> live = graph.clone();
  eliminate_dead_code(*live);
  bool silu = false;
  bool softmax = false;
  for (const Node* node : live->nodes()) {
    silu = silu || node->is("silu");
    softmax = softmax || node->is("softmax");
  }
  return silu && softmax;
}

TEST(RandomGraphs, FailingGraphsShrinkToWhatFails) {
  int shrunk = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const RandomGraph random = generate(seed);
    if (!has_both(*random.graph, random.inputs)) continue;
    const Shrunk small = shrink(*random.graph, random.inputs, has_both);
    EXPECT_EQ(small.graph->nodes().size(), 2U) << print(*small.graph);
    ++shrunk;
  }
  EXPECT_GT(shrunk, 0);
}

}  // namespace
}  // namespace atb::random_graphs
