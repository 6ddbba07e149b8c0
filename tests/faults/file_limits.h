// SPDX-License-Identifier: Apache-2.0
// For tests of files that lie about sizes: how much memory an attempt takes, and an end to it if it hangs.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "core/memory.h"

namespace atb::testing {

constexpr size_t kExtraBytes = size_t{64} << 20;  // more than a refusal may take

// Runs `attempt`; fails the test if the process grows by kExtraBytes or more at any moment of it, and ends the program
// if it has not returned after half a minute (it should take milliseconds).
template <class Attempt>
void expect_frugal(Attempt attempt) {
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak counts from here, where the system lets us
  const size_t before = peak_rss_bytes();
  ::alarm(30);
  attempt();
  ::alarm(0);
  EXPECT_LT(peak_rss_bytes(), before + kExtraBytes);
}

}  // namespace atb::testing
