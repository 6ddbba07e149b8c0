// SPDX-License-Identifier: Apache-2.0
// Checks a level's number.
#include "passes/opt_level.h"

#include "core/error.h"

namespace atb {

OptLevel opt_level(int64_t number, std::string_view where) {
  require(number >= 0 && number <= static_cast<int64_t>(OptLevel::kPlanned), Code::kInvalidArgument, "[", where,
          "] opt_level is ", number, "; allowed are 0 (as written), 1 (canonical), 2 (fused) and 3 (planned)");
  return static_cast<OptLevel>(number);
}

}  // namespace atb
