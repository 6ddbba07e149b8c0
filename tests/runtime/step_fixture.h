// SPDX-License-Identifier: Apache-2.0
// Step graphs of the tiny decoder, and the interpreter's answers for whole sequences.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "ir/interpreter.h"
#include "passes/pipeline.h"
#include "passes/tiny_llama.h"

namespace atb::test {

inline std::unique_ptr<Graph> step_graph(const PipelineOptions& options = {}) {
  std::unique_ptr<Graph> graph = TinyLlama(TinyConfig{}).build();
  optimize(*graph, options);
  return graph;
}

// Logits [tokens, vocab] of the plain, cache-free graph in f64.
inline std::vector<double> oracle_logits(const std::vector<int32_t>& ids) {
  const std::unique_ptr<Graph> graph = TinyLlama(TinyConfig{}).build();
  RefTensor<double> input;
  input.dtype = DType::kI32;
  input.shape = {1, static_cast<int64_t>(ids.size())};
  input.i.assign(ids.begin(), ids.end());
  return interpret<double>(*graph, {{"ids", input}}).at(0).f;
}

inline std::vector<int32_t> some_ids(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((random.next() + 1) * 14));
  return ids;
}

}  // namespace atb::test
