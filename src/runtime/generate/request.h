// SPDX-License-Identifier: Apache-2.0
// One sequence that the engine works on: a prompt to generate from, or a text whose logits are wanted.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/generate/sampling.h"
#include "runtime/generate/stopping.h"
#include "runtime/kv/sequence.h"

namespace atb {

struct Request {
  using Clock = std::chrono::steady_clock;

  // `params.max_new_tokens` is already cut to what the context allows.
  Request(std::vector<int32_t> prompt, const SamplingParams& params, uint64_t stream)
      : tokens(std::move(prompt)),
        prompt_tokens(static_cast<int64_t>(tokens.size())),
        sampler(params, stream),
        stop(params.stop_token_ids, params.max_new_tokens) {}

  std::vector<int32_t> tokens;  // prompt, then what was generated
  int64_t prompt_tokens;
  Sampler sampler;
  StopCondition stop;
  // Wants the logits of every row instead of new tokens: consume(first_row, rows, logits).
  std::function<void(int64_t, int64_t, const float*)> consume;

  std::unique_ptr<KvSequence> kv;  // null until admitted and after the end
  int64_t reserved_blocks = 0;
  size_t delivered = 0;  // tokens of `tokens` beyond the prompt that next() has handed out
  bool in_step = false;
  bool cancelled = false;
  FinishReason finished = FinishReason::kNone;
  std::exception_ptr error;

  Clock::time_point submitted, first_token, last_token;

  int64_t generated() const { return static_cast<int64_t>(tokens.size()) - prompt_tokens; }
  // Tokens whose keys and values are not in the cache yet: the prompt's rest, or the latest token.
  int64_t pending() const { return static_cast<int64_t>(tokens.size()) - kv->length(); }
  bool is_finished() const { return finished != FinishReason::kNone; }
  bool decoding() const { return generated() > 0; }
};

// Rows that a request has in a step.
struct StepShare {
  Request* request;
  int64_t rows;
  int64_t logit_row = -1;  // index of its first logits row in the step's logits; -1: none
  int64_t logit_rows = 0;
};

}  // namespace atb
