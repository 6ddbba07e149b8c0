// SPDX-License-Identifier: Apache-2.0
// What tests of normal forms share: a graph as text, made canonical, run before and after.
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <string_view>

#include "graph_testing.h"
#include "ir/text.h"
#include "passes/canonical/canonical.h"
#include "passes/cse.h"
#include "passes/dce.h"
#include "passes/fold_constants.h"

namespace atb::test {

// Literals of chains are f32, the operators that replace them have their constants in full.
constexpr double kLiterals = 1e-6;

// A graph of these inputs and lines; those of constants may stand anywhere.
inline std::string text_of(const std::string& inputs, const std::string& body) {
  std::string constants, nodes;
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);) (line.starts_with("  const") ? constants : nodes) += line + "\n";
  return "graph @g(" + inputs + ") {\n" + constants + nodes + "}\n";
}

inline std::unique_ptr<Graph> parsed(const std::string& inputs, const std::string& body) {
  std::unique_ptr<Graph> graph = parse_graph(text_of(inputs, body));
  fill_constants(*graph);
  return graph;
}

// The graph as the pipeline leaves it before fusions; its numbers must be those of the one it came from.
inline std::unique_ptr<Graph> canonical(const std::string& inputs, const std::string& body,
                                        const Bindings& bindings = {{"B", 2}, {"T", 5}}) {
  std::unique_ptr<Graph> graph = parsed(inputs, body);
  const std::unique_ptr<Graph> before = graph->clone();
  eliminate_common_subexpressions(*graph);
  canonicalize(*graph);
  verify(*graph, "canonicalize");
  fold_constants(*graph);
  eliminate_dead_code(*graph);
  verify(*graph, "fold and dce");
  EXPECT_EQ(canonicalize(*graph), 0) << "not settled";
  expect_same_numbers(*before, *graph, bindings, kLiterals);
  return graph;
}

// The operators in order: "linear silu mul".
inline std::string ops(const Graph& graph) {
  std::string names;
  for (const Node* node : graph.nodes()) names += (names.empty() ? "" : " ") + node->op_name();
  return names;
}

inline std::string canonical_ops(const std::string& inputs, const std::string& body,
                                 const Bindings& bindings = {{"B", 2}, {"T", 5}}) {
  return ops(*canonical(inputs, body, bindings));
}

}  // namespace atb::test
