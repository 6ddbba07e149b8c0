// SPDX-License-Identifier: Apache-2.0
// Sampling: deterministic filters over a partly sorted candidate list, probabilities in f64.
#include "runtime/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "runtime/generate/philox.h"

namespace atb {
namespace {

// Beyond this many, selecting and then sorting beats the heap of partial_sort.
constexpr size_t kHeapLimit = 256;
// How many candidates top-p sorts first; four times as many whenever they do not reach its share.
constexpr size_t kFirstSorted = 64;

// The largest logit and its lowest index; throws unless there is one above -inf and none is NaN.
std::pair<float, int32_t> checked_max(std::span<const float> logits) {
  constexpr size_t kBlock = 16;
  float best = -std::numeric_limits<float>::infinity();
  int64_t index = -1;
  const auto look = [&](size_t i) {
    if (logits[i] <= best) return;  // false for NaN
    require(!std::isnan(logits[i]), Code::kDataLoss, "[sampling] the logit of token ", i,
            " is NaN: a weight is broken or a number overflowed; check the file, or try precision exact");
    best = logits[i];
    index = static_cast<int64_t>(i);
  };
  size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) {
    // Most blocks hold nothing new: one branch for all of a block lets the compiler use vectors.
    int news = 0;
    for (size_t j = 0; j < kBlock; ++j) news |= !(logits[i + j] <= best);
    if (news == 0) continue;
    for (size_t j = 0; j < kBlock; ++j) look(i + j);
  }
  for (; i < logits.size(); ++i) look(i);
  require(index >= 0, Code::kDataLoss, "[sampling] all ", logits.size(),
          " logits are -inf: a weight is broken or everything is masked");
  return {best, static_cast<int32_t>(index)};
}

}  // namespace

void validate(const SamplingParams& params, int64_t vocab) {
  require(std::isfinite(params.temperature) && params.temperature >= 0, Code::kInvalidArgument,
          "[sampling] temperature is ", params.temperature, ", allowed are finite numbers from 0 (greedy)");
  require(params.top_k >= -1, Code::kInvalidArgument, "[sampling] top_k is ", params.top_k,
          ", allowed are 1 or more, and 0 or -1 for no filter");
  require(params.top_p >= 0 && params.top_p <= 1, Code::kInvalidArgument, "[sampling] top_p is ", params.top_p,
          ", allowed are 0 to 1");
  require(params.max_new_tokens >= 0, Code::kInvalidArgument, "[sampling] max_new_tokens is ", params.max_new_tokens,
          ", allowed are 0 or more");
  for (const int32_t id : params.stop_token_ids) {
    require(id >= 0 && id < vocab, Code::kInvalidArgument, "[sampling] stop_token_ids has ", id, ", allowed are 0 to ",
            vocab - 1, " (the vocabulary)");
  }
}

int32_t argmax(std::span<const float> logits) { return checked_max(logits).second; }

void Sampler::collect(std::span<const float> logits) {
  max_ = checked_max(logits).first;
  require(max_ < std::numeric_limits<float>::infinity(), Code::kDataLoss,
          "[sampling] a logit is +inf: a number overflowed; check the file, or try precision exact");
  candidates_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) candidates_[i] = {logits[i], static_cast<int32_t>(i), 0};
  sorted_ = 0;
  apply_top_k();
  weigh();
  apply_top_p();
}

// Brings the `count` first candidates of the order to the front, sorted.
void Sampler::sort_first(size_t count) {
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  };
  if (count <= sorted_) return;
  const auto begin = candidates_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  const auto middle = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
  if (count - sorted_ <= kHeapLimit) {
    std::partial_sort(begin, middle, candidates_.end(), before);
  } else {
    if (middle != candidates_.end()) std::nth_element(begin, middle, candidates_.end(), before);
    std::sort(begin, middle, before);
  }
  sorted_ = count;
}

void Sampler::apply_top_k() {
  if (params_.top_k < 1 || static_cast<uint64_t>(params_.top_k) >= candidates_.size()) return;
  sort_first(static_cast<size_t>(params_.top_k));
  candidates_.resize(static_cast<size_t>(params_.top_k));
}

void Sampler::weigh() {
  total_ = 0;
  for (Candidate& candidate : candidates_) {
    // The subtraction comes first, so that no temperature can overflow it.
    candidate.weight =
        std::exp((static_cast<double>(candidate.logit) - static_cast<double>(max_)) / params_.temperature);
    total_ += candidate.weight;
  }
}

void Sampler::apply_top_p() {
  if (params_.top_p >= 1) return;
  const double enough = params_.top_p * total_;
  total_ = 0;
  size_t kept = 0;
  do {
    if (kept == sorted_) sort_first(std::min(std::max(kFirstSorted, 4 * sorted_), candidates_.size()));
    total_ += candidates_[kept++].weight;
  } while (total_ < enough && kept < candidates_.size());
  candidates_.resize(kept);
}

int32_t Sampler::sample(std::span<const float> logits, uint64_t index) {
  if (params_.temperature == 0) return argmax(logits);
  collect(logits);
  const double target = uniform(params_.seed, stream_, index) * total_;
  double sum = 0;
  int32_t last = candidates_.front().id;
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight == 0) continue;
    sum += candidate.weight;
    last = candidate.id;
    if (sum > target) break;
  }
  return last;  // also when rounding left target at the total
}

std::vector<std::pair<int32_t, double>> Sampler::distribution(std::span<const float> logits) {
  if (params_.temperature == 0) return {{argmax(logits), 1.0}};
  collect(logits);
  sort_first(candidates_.size());
  std::vector<std::pair<int32_t, double>> result;
  result.reserve(candidates_.size());
  for (const Candidate& candidate : candidates_) result.emplace_back(candidate.id, candidate.weight / total_);
  return result;
}

}  // namespace atb
