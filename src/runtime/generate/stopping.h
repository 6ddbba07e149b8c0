// SPDX-License-Identifier: Apache-2.0
// When a request ends.
#pragma once

#include <cstdint>
#include <vector>

#include "atb/generation.h"

namespace atb {

// The end of one request by its tokens: any of several stop tokens, or a number of new tokens.
class StopCondition {
 public:
  // Ids in any order, repeated ones allowed. `max_new_tokens` >= 0, already cut to what the context leaves.
  StopCondition(std::vector<int32_t> stop_token_ids, int64_t max_new_tokens);

  bool is_stop_token(int32_t token) const;
  // After `token` was made as number `generated` (from 1). A stop token on the last allowed place counts as stop; it is
  // not part of the text.
  FinishReason after(int32_t token, int64_t generated) const;
  // Before the first token: kLength when none is allowed.
  FinishReason at_start() const { return max_new_tokens_ == 0 ? FinishReason::kLength : FinishReason::kNone; }

 private:
  std::vector<int32_t> stop_;  // sorted
  int64_t max_new_tokens_;
};

}  // namespace atb
