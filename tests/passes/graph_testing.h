// SPDX-License-Identifier: Apache-2.0
// What tests of passes share: running a graph on random inputs, comparing two graphs, counting and finding nodes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/interpreter.h"
#include "ir/op.h"
#include "ir/verifier.h"
#include "passes/engine/driver.h"
#include "passes/pipeline.h"
#include "tiny_llama.h"

namespace atb::test {

using Inputs = std::map<std::string, RefTensor<double>>;

// f32 elements rounded to f16 or bf16.
inline ConstantRef as_half(const Constant& constant, DType dtype) {
  std::vector<uint16_t> halves;
  for (const float x : constant.to_f32()) halves.push_back(dtype == DType::kF16 ? f32_to_f16(x) : f32_to_bf16(x));
  const auto* bytes = reinterpret_cast<const std::byte*>(halves.data());
  return Constant::from_storage(constant.name(), dtype, nullptr, constant.shape(),
                                storage_from_bytes({bytes, bytes + halves.size() * 2}), 0);
}

// Random inputs of every type; integers below 13.
inline Inputs random_inputs(const Graph& graph, const Bindings& bindings, uint64_t seed = 1) {
  Inputs inputs;
  Random random(seed);
  for (const Value* input : graph.inputs()) {
    RefTensor<double> tensor;
    tensor.dtype = input->type().dtype;
    tensor.shape = eval(input->shape(), bindings);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (is_float(tensor.dtype)) {
        const float x = random.next();
        const DType dtype = tensor.dtype;
        tensor.f.push_back(dtype == DType::kBF16  ? bf16_to_f32(f32_to_bf16(x))
                           : dtype == DType::kF16 ? f16_to_f32(f32_to_f16(x))
                                                  : x);
      } else {
        tensor.i.push_back(static_cast<int64_t>((random.next() + 1) * 6.4F));
      }
    }
    inputs[input->name()] = std::move(tensor);
  }
  return inputs;
}

// Absent float weights get random numbers, so that the graph can run.
inline void fill_constants(Graph& graph) {
  Random random(5);
  for (Value* value : graph.constants()) {
    const Constant& constant = *value->constant();
    if (!constant.absent() || !is_float(constant.dtype()) || constant.encoding() != nullptr) continue;
    const std::vector<float> data = random.vector(constant.num_rows() * constant.row_elems(), 0.7F);
    ConstantRef filled = Constant::from_f32(constant.name(), constant.shape(), data);
    if (constant.dtype() != DType::kF32) filled = as_half(*filled, constant.dtype());
    graph.rename(value, constant.name() + ".absent");
    graph.replace_all_uses(value, graph.add_constant(filled));
  }
}

inline void expect_near(const std::vector<RefTensor<double>>& actual, const std::vector<RefTensor<double>>& expected,
                        double tolerance = 1e-9) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].shape, expected[i].shape) << "output " << i;
    double worst = 0;
    for (size_t j = 0; j < actual[i].f.size(); ++j) {
      ASSERT_TRUE(std::isfinite(expected[i].f[j]));
      worst = std::max(worst, std::abs(actual[i].f[j] - expected[i].f[j]));
      if (std::isnan(actual[i].f[j])) worst = actual[i].f[j];
    }
    EXPECT_LE(worst, tolerance) << "output " << i;
    EXPECT_EQ(actual[i].i, expected[i].i) << "output " << i;
  }
}

inline void expect_same_numbers(const Graph& before, const Graph& after,
                                const Bindings& bindings = {{"B", 2}, {"T", 5}}, double tolerance = 1e-9) {
  const Inputs inputs = random_inputs(before, bindings);
  expect_near(interpret<double>(after, inputs), interpret<double>(before, inputs), tolerance);
}

inline int64_t count(const Graph& graph, std::string_view op) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node* node) { return node->is(op); });
}

inline Node* find(const Graph& graph, std::string_view name) {
  for (Node* node : graph.nodes()) {
    if (node->name() == name) return node;
  }
  ADD_FAILURE() << "no node " << name;
  return nullptr;
}

// Applies one fusion by name and verifies.
inline MatchReport apply(Graph& graph, std::string_view pattern) {
  MatchReport report;
  apply_patterns(graph, {PatternRegistry::instance().find(pattern)}, report);
  verify(graph, pattern);
  return report;
}

// Applies a fusion to a graph that it must match `matches` times, and compares numbers.
inline MatchReport expect_fused(std::unique_ptr<Graph> graph, std::string_view pattern, int64_t matches) {
  const std::unique_ptr<Graph> before = graph->clone();
  MatchReport report = apply(*graph, pattern);
  EXPECT_EQ(report.patterns.at(0).matches, matches);
  if (matches > 0) expect_same_numbers(*before, *graph);
  return report;
}

// Applies a fusion that must not match, for this reason.
inline void expect_miss(Graph& graph, std::string_view pattern, const std::string& reason) {
  const MatchReport report = apply(graph, pattern);
  EXPECT_EQ(report.patterns.at(0).matches, 0);
  ASSERT_FALSE(report.misses.empty());
  EXPECT_EQ(report.misses[0].str(), reason);
}

}  // namespace atb::test
