// SPDX-License-Identifier: Apache-2.0
// Runs a step graph over several sequences, a few tokens at a time, on the interpreter.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "ir/graph.h"
#include "ir/interpreter.h"

namespace atb::test {

inline RefTensor<double> integers(std::vector<int64_t> values) {
  RefTensor<double> tensor;
  tensor.dtype = DType::kI32;
  tensor.shape = {static_cast<int64_t>(values.size())};
  tensor.i = std::move(values);
  return tensor;
}

// Feeds sequences to a step graph piece by piece and keeps each row's logits.
class Stepper {
 public:
  explicit Stepper(const Graph& graph) : graph_(graph) {
    kv_.dtype = DType::kState;
    kv_.state = std::make_shared<RefKvState<double>>();
  }

  // Appends rows[s] tokens of prompts[s] of each sequence in one step, in the given order of sequences.
  void step(const std::vector<std::vector<int64_t>>& prompts, const std::vector<int64_t>& order,
            const std::vector<int64_t>& rows) {
    std::vector<RefSequence> sequences;
    std::vector<int64_t> ids, positions, all;
    for (int64_t s : order) {
      const int64_t begin = static_cast<int64_t>(ids.size());
      const int64_t past = past_[s];
      for (int64_t i = 0; i < rows[static_cast<size_t>(s)]; ++i) {
        ids.push_back(prompts[static_cast<size_t>(s)][static_cast<size_t>(past + i)]);
        positions.push_back(past + i);
        all.push_back(static_cast<int64_t>(all.size()));
      }
      sequences.push_back({s, begin, rows[static_cast<size_t>(s)], past});
      past_[s] += rows[static_cast<size_t>(s)];
    }
    const std::vector<RefTensor<double>> out = interpret<double>(
        graph_,
        {{"ids", integers(ids)}, {"positions", integers(positions)}, {"logit_rows", integers(all)}, {"kv", kv_}},
        sequences);
    kv_ = out[1];
    const size_t vocab = static_cast<size_t>(out[0].shape[1]);
    for (const RefSequence& sequence : sequences) {
      const auto first = out[0].f.begin() + sequence.row_begin * static_cast<int64_t>(vocab);
      std::vector<double>& logits = logits_[sequence.id];
      logits.insert(logits.end(), first, first + sequence.rows * static_cast<int64_t>(vocab));
    }
  }

  const std::vector<double>& logits(int64_t sequence) { return logits_[sequence]; }

 private:
  const Graph& graph_;
  RefTensor<double> kv_;
  std::map<int64_t, int64_t> past_;
  std::map<int64_t, std::vector<double>> logits_;
};

}  // namespace atb::test
