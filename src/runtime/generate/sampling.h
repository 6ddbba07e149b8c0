// SPDX-License-Identifier: Apache-2.0
// Choosing the next token from one row of logits: greedy, temperature, top-k, top-p.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "atb/generation.h"

namespace atb {

// kInvalidArgument naming the field: temperature finite and >= 0, top_k >= -1, top_p in [0, 1], max_new_tokens >= 0,
// stop token ids in [0, vocab).
void validate(const SamplingParams& params, int64_t vocab);

// Index of the largest logit, the lowest on ties. kDataLoss when a logit is NaN or none is above -inf.
int32_t argmax(std::span<const float> logits);

// One request's chooser. The choice depends only on (logits, params, stream, index), never on other rows, threads or
// earlier calls. Order among equal logits: lower id first. Not thread-safe (it keeps scratch); one a request.
class Sampler {
 public:
  // `stream` tells requests of one seed apart (the number of a prompt in a batch).
  explicit Sampler(const SamplingParams& params, uint64_t stream = 0) : params_(params), stream_(stream) {}

  const SamplingParams& params() const { return params_; }
  // Token number `index` of the request's output. kDataLoss for logits that are NaN, +inf, or all -inf.
  int32_t sample(std::span<const float> logits, uint64_t index);
  // What the filters keep, in the order of choice, with normalized probabilities; for tests and log probabilities.
  std::vector<std::pair<int32_t, double>> distribution(std::span<const float> logits);

 private:
  struct Candidate {
    float logit;
    int32_t id;
    double weight;  // relative probability: 1 for the largest logit
  };
  void collect(std::span<const float> logits);
  void sort_first(size_t count);
  void apply_top_k();
  void weigh();
  void apply_top_p();

  SamplingParams params_;
  uint64_t stream_;
  float max_ = 0;                      // largest logit
  double total_ = 0;                   // of the candidates' weights, added in their order before top-p
  std::vector<Candidate> candidates_;  // those kept; the first sorted_ in order, then the rest, all of them smaller
  size_t sorted_ = 0;
};

}  // namespace atb
