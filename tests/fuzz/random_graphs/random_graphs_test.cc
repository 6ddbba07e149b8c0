// SPDX-License-Identifier: Apache-2.0
// Random graphs in every run of the tests: a first part of the seeds of `make fuzz`, and the generator and the checks
// themselves.
#include <gtest/gtest.h>

#include "fuzz/random_graphs/explain.h"
#include "fuzz/random_graphs/shrink.h"
#include "ir/text.h"

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

// A defect that is in no pass: whoever calls softmax with silu in the same graph.
bool has_both(const Graph& graph, const Inputs& inputs) {
  interpret<double>(graph, inputs);  // must be a graph that runs
  bool silu = false;
  bool softmax = false;
  for (const Node* node : graph.nodes()) {
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
