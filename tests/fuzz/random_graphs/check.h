// SPDX-License-Identifier: Apache-2.0
// Runs a random graph and compares: plain and optimized in the f64 interpreter, and compiled in f32 at every level.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "fuzz/random_graphs/generate.h"

namespace atb::random_graphs {

struct Failure {
  enum class Kind { kThrows, kNumbers, kCompiledNumbers, kPlant };
  Kind kind;
  std::string what;
};

// How often plants of each sort were there, and what became of them.
struct Counts {
  int64_t graphs = 0, nodes = 0, outputs = 0;
  std::map<std::string, int64_t> fired;            // by pattern: whole plants that were fused
  std::map<std::string, int64_t> flawed;           // by "pattern: flaw": plants that were there
  double worst_optimized = 0, worst_compiled = 0;  // errors over spread
  void add(const Counts& other);
};

// Errors over the spread of an output.
constexpr double kOptimizedTolerance = 1e-9;
constexpr double kRoundedTolerance = 1e-5;  // where a pass computes constants in f32
constexpr double kCompiledTolerance = 1e-5;

// Numbers of a graph, plain against optimized and compiled. Plants are not looked at.
std::optional<Failure> check_numbers(const Graph& graph, const Inputs& inputs, double tolerance,
                                     Counts* counts = nullptr);

// Numbers at both sizes, and whether each plant fared as it should.
std::optional<Failure> check(const RandomGraph& random, Counts* counts = nullptr);

// What the optimized graph may be off.
double tolerance_of(const RandomGraph& random);

// The first pass after which the f64 interpreter gives other numbers, and for the fusions which pattern; "no pass" if
// only the compiled graph differs.
std::string first_wrong_pass(const Graph& graph, const Inputs& inputs, double tolerance);

}  // namespace atb::random_graphs
