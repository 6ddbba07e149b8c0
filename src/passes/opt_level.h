// SPDX-License-Identifier: Apache-2.0
// How far a graph is optimized before it runs. Each level does what those before it do.
#pragma once

#include <cstdint>
#include <string_view>

namespace atb {

enum class OptLevel {
  kAsWritten,  // the graph's own operators, one after another
  kCanonical,  // one spelling of equal things; nothing computed twice, for nobody, or from constants alone
  kFused,      // fused operators
  kPlanned,    // independent nodes side by side, buffers that share memory
};

// The level of a number that a user gave. kInvalidArgument "[where] opt_level ..." beyond 0 to 3.
OptLevel opt_level(int64_t number, std::string_view where);

}  // namespace atb
