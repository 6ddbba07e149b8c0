// SPDX-License-Identifier: Apache-2.0
// Stop tokens and lengths.
#include "runtime/generate/stopping.h"

#include <algorithm>
#include <utility>

namespace atb {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "";
}

StopCondition::StopCondition(std::vector<int32_t> stop_token_ids, int64_t max_new_tokens)
    : stop_(std::move(stop_token_ids)), max_new_tokens_(max_new_tokens) {
  std::sort(stop_.begin(), stop_.end());
}

bool StopCondition::is_stop_token(int32_t token) const { return std::binary_search(stop_.begin(), stop_.end(), token); }

FinishReason StopCondition::after(int32_t token, int64_t generated) const {
  if (is_stop_token(token)) return FinishReason::kStop;
  return generated >= max_new_tokens_ ? FinishReason::kLength : FinishReason::kNone;
}

}  // namespace atb
