// SPDX-License-Identifier: Apache-2.0
// Runs a model's plain graph on the reference interpreter.
#pragma once

#include <vector>

#include "ir/interpreter.h"
#include "models/model.h"

namespace atb::testing {

// Logits [tokens * vocab] of one sequence, in f64 arithmetic.
inline std::vector<double> reference_logits(const Graph& graph, const std::vector<int64_t>& ids) {
  RefTensor<double> input;
  input.dtype = DType::kI32;
  input.shape = {1, static_cast<int64_t>(ids.size())};
  input.i = ids;
  return interpret<double>(graph, {{"ids", input}}).at(0).f;
}

// Largest difference of two runs, relative to the standard deviation of the first.
inline double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double mean = 0, variance = 0, largest = 0;
  for (const double x : a) mean += x / static_cast<double>(a.size());
  for (const double x : a) variance += (x - mean) * (x - mean) / static_cast<double>(a.size());
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b.at(i)));
  return largest / std::sqrt(variance);
}

// One line a node: name = operator(inputs) : type.
inline std::string outline(const Graph& graph) {
  std::string text;
  for (const Node* node : graph.nodes()) {
    text += node->name() + " = " + node->op_name() + "(";
    for (const Value* input : node->inputs()) text += (input ? input->name() + " " + input->type().str() : "-") + ", ";
    text += ") : " + node->output()->type().str() + "\n";
  }
  return text;
}

}  // namespace atb::testing
