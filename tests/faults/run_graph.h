// SPDX-License-Identifier: Apache-2.0
// A graph in text run twice: as it is, on the interpreter in f64, and compiled with all fusions, on its kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "api/compiled_graph.h"
#include "ir/interpreter.h"
#include "ir/text.h"

namespace atb::testing {

using Arrays = std::map<std::string, RefTensor<double>>;

inline RefTensor<double> floats(std::vector<int64_t> shape, std::vector<double> values) {
  RefTensor<double> array;
  array.shape = std::move(shape);
  array.f = std::move(values);
  return array;
}

inline RefTensor<double> truths(std::vector<int64_t> shape, std::vector<int64_t> values) {
  RefTensor<double> array;
  array.dtype = DType::kBool;
  array.shape = std::move(shape);
  array.i = std::move(values);
  return array;
}

// Numbers around 0 in no particular order.
inline RefTensor<double> scattered(std::vector<int64_t> shape, int64_t seed) {
  RefTensor<double> array = floats(std::move(shape), {});
  for (int64_t i = 0; i < array.size(); ++i) {
    array.f.push_back(static_cast<double>(static_cast<float>(((i + seed) * 37 % 61 - 30) / 17.0)));
  }
  return array;
}

struct RanGraph {
  std::vector<std::vector<double>> plain;    // outputs of the graph as written
  std::vector<std::vector<float>> compiled;  // and of what was made of it
  std::unique_ptr<CompiledGraph> graph;

  int64_t count(std::string_view op) const {
    int64_t found = 0;
    for (const Node* node : graph->graph().nodes()) found += node->is(op) ? 1 : 0;
    return found;
  }
  const Node* find(std::string_view op) const {
    for (const Node* node : graph->graph().nodes()) {
      if (node->is(op)) return node;
    }
    return nullptr;
  }
  void expect_equal(double tolerance = 1e-5) const {
    ASSERT_EQ(compiled.size(), plain.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      ASSERT_EQ(compiled[i].size(), plain[i].size());
      for (size_t j = 0; j < plain[i].size(); ++j) {
        ASSERT_NEAR(compiled[i][j], plain[i][j], tolerance * std::max(1.0, std::abs(plain[i][j])))
            << "output " << i << ", element " << j;
      }
    }
  }
};

inline RanGraph run_graph(const std::string& text, const Arrays& inputs) {
  RanGraph result;
  const auto plain = parse_graph(text);
  for (RefTensor<double>& output : interpret<double>(*plain, inputs)) result.plain.push_back(std::move(output.f));
  CompileOptions options;
  options.threads = 1;
  result.graph = std::make_unique<CompiledGraph>(plain->clone(), options);
  std::vector<Tensor> tensors;
  std::vector<TensorView> views;
  for (const Value* input : plain->inputs()) {
    const RefTensor<double>& array = inputs.at(input->name());
    Tensor& tensor = tensors.emplace_back(Tensor::allocate(array.dtype, array.shape));
    views.push_back(tensor.view());
    for (size_t i = 0; i < array.f.size(); ++i) views.back().as<float>()[i] = static_cast<float>(array.f[i]);
    for (size_t i = 0; i < array.i.size(); ++i) {
      if (array.dtype == DType::kBool) {
        views.back().as<uint8_t>()[i] = static_cast<uint8_t>(array.i[i]);
      } else {
        views.back().as<int64_t>()[i] = array.i[i];
      }
    }
  }
  for (const Tensor& output : result.graph->run(views)) {
    const float* data = output.view().as<const float>();
    result.compiled.emplace_back(data, data + output.view().size());
  }
  return result;
}

}  // namespace atb::testing
