// SPDX-License-Identifier: Apache-2.0
// atb_random_graphs [--graphs N] [--first SEED] [--print SEED]: checks graphs of N seeds and counts what was fused.
// Ends with 1 on a failure, or if N is 2,000 or more and a pattern fired fewer than 100 times or a flaw never occurred.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fuzz/random_graphs/explain.h"
#include "ir/text.h"

namespace atb::random_graphs {
namespace {

constexpr int64_t kFullRun = 2000;
constexpr int64_t kFiredAtLeast = 100;
constexpr int64_t kShownFailures = 50;

bool enough(const Counts& counts) {
  bool all = true;
  for (const PlantKind& kind : plant_kinds()) {
    const auto fired = counts.fired.find(kind.pattern);
    const int64_t times = fired == counts.fired.end() ? 0 : fired->second;
    int64_t flawed = 0;
    for (const std::string& flaw : kind.flaws) {
      const auto found = counts.flawed.find(std::string(kind.pattern) + ": " + flaw);
      if (found != counts.flawed.end()) flawed += found->second;
      if (found != counts.flawed.end() || counts.graphs < kFullRun) continue;
      std::printf("[random graphs] %s: no graph had the flaw \"%s\"\n", kind.pattern, flaw.c_str());
      all = false;
    }
    std::printf("[random graphs] %s: %lld whole and fused, %lld flawed and told apart\n", kind.pattern,
                static_cast<long long>(times), static_cast<long long>(flawed));
    if (counts.graphs >= kFullRun && times < kFiredAtLeast) all = false;
  }
  return all;
}

// Empty if all is well; an Error of the generator itself counts too.
std::string failure_of(uint64_t seed, Counts& counts, bool explained) {
  try {
    const RandomGraph random = generate(seed);
    const std::optional<Failure> failure = check(random, &counts);
    if (!failure) return "";
    return explained ? explain(random, *failure) : failure->what;
  } catch (const Error& error) {
    return "seed " + std::to_string(seed) + ": " + error.what();
  }
}

int run(uint64_t first, int64_t graphs) {
  Counts counts;
  int64_t failures = 0;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(graphs); ++seed) {
    const std::string failure = failure_of(seed, counts, failures < kShownFailures);
    if (failure.empty()) continue;
    ++failures;
    if (failures <= kShownFailures) std::printf("[random graphs] %s\n", failure.c_str());
  }
  counts.graphs += failures;
  const bool all = enough(counts);
  std::printf("[random graphs] %lld graphs, %lld nodes, %lld failures; largest errors: optimized %.1e, compiled %.1e\n",
              static_cast<long long>(counts.graphs), static_cast<long long>(counts.nodes),
              static_cast<long long>(failures), counts.worst_optimized, counts.worst_compiled);
  return failures == 0 && all ? 0 : 1;
}

}  // namespace
}  // namespace atb::random_graphs

int main(int count, char** arguments) {
  uint64_t first = 0;
  int64_t graphs = 2000;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view option = arguments[i];
    const int64_t number = std::strtoll(arguments[i + 1], nullptr, 10);
    if (option == "--first") first = static_cast<uint64_t>(number);
    if (option == "--graphs") graphs = number;
    if (option == "--print") {
      std::printf("%s", atb::print(*atb::random_graphs::generate(static_cast<uint64_t>(number)).graph).c_str());
      return 0;
    }
  }
  return atb::random_graphs::run(first, graphs);
}
