// SPDX-License-Identifier: Apache-2.0
#include "fuzz/random_graphs/explain.h"

#include "fuzz/random_graphs/shrink.h"
#include "ir/text.h"

namespace atb::random_graphs {
namespace {

// Whether the numbers fail in the same way; graphs that lost what makes them run do not count.
bool fails_alike(const Graph& graph, const Inputs& inputs, double tolerance, Failure::Kind kind) {
  try {
    const std::optional<Failure> failure = check_numbers(graph, inputs, tolerance);
    return failure && failure->kind == kind;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string explain(const RandomGraph& random, const Failure& failure) {
  std::string text = "seed " + std::to_string(random.seed) + ": " + failure.what + "\n";
  const double tolerance = tolerance_of(random);
  for (const Inputs* inputs : {&random.inputs, &random.other_inputs}) {
    if (!fails_alike(*random.graph, *inputs, tolerance, failure.kind)) continue;
    const Shrunk small = shrink(*random.graph, *inputs, [&](const Graph& graph, const Inputs& given) {
      return fails_alike(graph, given, tolerance, failure.kind);
    });
    text += "first wrong: " + first_wrong_pass(*small.graph, small.inputs, tolerance) + "\n";
    for (const auto& [name, tensor] : small.inputs) {
      text += "  %" + name + " " + to_string(Shape(tensor.shape.begin(), tensor.shape.end())) + "\n";
    }
    return text + print(*small.graph);
  }
  return text + print(*random.graph);
}

}  // namespace atb::random_graphs
