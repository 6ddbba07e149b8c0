// SPDX-License-Identifier: Apache-2.0
// What goes into a request for new tokens and what comes back: plain values.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "atb/export.h"

namespace atb {

struct SamplingParams {
  double temperature = 0;  // 0: greedy; otherwise logits are divided by it
  int64_t top_k = 0;       // keep the k largest; 0, -1 and anything from the vocabulary's size on: no filter
  double top_p = 1;        // then keep the fewest largest whose share reaches top_p, at least one; 1: no filter
  uint64_t seed = 0;
  int64_t max_new_tokens = 128;
  std::vector<int32_t> stop_token_ids = {};  // the model's own are in LanguageModelInfo
};

enum class FinishReason { kNone, kStop, kLength, kCancelled };

// "stop", "length", "cancelled"; "" while it runs.
ATB_API std::string_view finish_reason_name(FinishReason reason);

// What a caller receives from next().
struct Progress {
  std::vector<int32_t> tokens;  // new since the last call; without the stop token
  FinishReason finished = FinishReason::kNone;
};

struct RequestTiming {
  double prefill_s = 0;  // submission to first token
  double decode_s = 0;   // first token to last
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
};

}  // namespace atb
