// SPDX-License-Identifier: Apache-2.0
// Golden graphs: tests/goldens/passes/*.txt hold passes, a graph before and a graph after. Each is also run: a golden
// proves shape, numbers prove correctness.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "graph_testing.h"
#include "ir/text.h"
#include "passes/registry.h"

namespace atb {
namespace {

struct Golden {
  std::vector<std::string> passes;
  std::string before;
  std::string after;
};

// Lines "pass: NAME", then "--- before" and "--- after" with a graph each; lines that start with # are comments.
Golden read_golden(const std::filesystem::path& path) {
  Golden golden;
  std::string* part = nullptr;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#") && part == nullptr) continue;
    if (line.starts_with("pass: ")) {
      golden.passes.push_back(line.substr(6));
    } else if (line == "--- before") {
      part = &golden.before;
    } else if (line == "--- after") {
      part = &golden.after;
    } else if (part != nullptr) {
      *part += line + "\n";
    }
  }
  return golden;
}

class GoldenTest : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(GoldenTest, ShapeAndNumbers) {
  const Golden golden = read_golden(GetParam());
  ASSERT_FALSE(golden.passes.empty());
  auto graph = parse_graph(golden.before);
  auto filled = graph->clone();
  test::fill_constants(*filled);
  const auto plain = filled->clone();
  MatchReport report;
  for (const std::string& pass : golden.passes) {
    PassRegistry::instance().run(pass, *graph, report);
    PassRegistry::instance().run(pass, *filled, report);
  }
  EXPECT_EQ(print(*graph), golden.after);
  const bool stateful =
      std::any_of(graph->nodes().begin(), graph->nodes().end(), [](const Node* node) { return node->op().has_state; });
  if (!stateful) test::expect_same_numbers(*plain, *filled);  // steps have tests of their own
}

std::vector<std::filesystem::path> golden_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ATB_TEST_DATA) / "goldens/passes")) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

INSTANTIATE_TEST_SUITE_P(Passes, GoldenTest, ::testing::ValuesIn(golden_files()),
                         [](const auto& test) { return test.param.stem().string(); });

}  // namespace
}  // namespace atb
