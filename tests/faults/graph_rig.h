// SPDX-License-Identifier: Apache-2.0
// Faults of fusions: a graph as text, compiled with all passes and run on the CPU.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "api/compiled_graph.h"
#include "ir/text.h"

namespace atb::testing {

// "graph @g(inputs) { body }", compiled.
inline std::unique_ptr<CompiledGraph> compiled(const std::string& inputs, const std::string& body) {
  return std::make_unique<CompiledGraph>(parse_graph("graph @g(" + inputs + ") {\n" + body + "\n}\n"),
                                         CompileOptions{.threads = 1});
}

inline bool has(const CompiledGraph& graph, std::string_view op) {
  for (const Node* node : graph.graph().nodes()) {
    if (node->is(op)) return true;
  }
  return false;
}

template <class Element>
Tensor tensor(DType dtype, std::vector<int64_t> shape, const std::vector<Element>& values) {
  Tensor result = Tensor::allocate(dtype, std::move(shape));
  std::memcpy(result.data.get(), values.data(), values.size() * sizeof(Element));
  return result;
}

inline Tensor floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  return tensor(DType::kF32, std::move(shape), values);
}

inline Tensor bfloats(std::vector<int64_t> shape, const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(f32_to_bf16(value));
  return tensor(DType::kBF16, std::move(shape), bits);
}

inline std::vector<Tensor> run(CompiledGraph& graph, const std::vector<Tensor>& inputs) {
  std::vector<TensorView> views;
  for (const Tensor& input : inputs) views.push_back(input.view());
  return graph.run(views);
}

template <class Element = float>
std::vector<Element> values(const Tensor& tensor) {
  const auto* first = reinterpret_cast<const Element*>(tensor.data.get());
  return {first, first + tensor.view().size()};
}

}  // namespace atb::testing
