// SPDX-License-Identifier: Apache-2.0
// Thread counts arrive as any Python integer.
#pragma once

#include <cstdint>
#include <utility>

#include "core/error.h"

namespace atb {

inline int thread_count(int64_t threads) {
  require(std::in_range<int>(threads), Code::kInvalidArgument, "[threads] thread count is ", threads,
          "; give a small number, or 0 for one a CPU");
  return static_cast<int>(threads);
}

}  // namespace atb
