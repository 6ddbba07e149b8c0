// SPDX-License-Identifier: Apache-2.0
// What this machine can do at most, measured: read bandwidth and f32 multiply-add peak, with the threads of a team.
#pragma once

#include <cstddef>
#include <string>

namespace atb {

class ThreadTeam;

struct Roofline {
  double read_gb_s = 0;    // 10^9 bytes a second, all threads together
  double f32_gflop_s = 0;  // 10^9 operations a second, a multiply-add counts 2
  int threads = 0;
  size_t read_bytes = 0;  // working set of the read measurement
  std::string target;     // instruction set that was used
};

// Best of several passes of all threads over a buffer of `bytes` (at least 1 MB), during about `seconds`: several far
// streams a thread on huge pages with prefetch. Give it the size of what will be read in a step (the weights): where a
// cache holds that much, the limit is the cache's and not the memory's, and only equal sizes compare. The buffer counts
// in the peak memory of the process. kResourceExhausted without memory for it.
double measure_read_gb_s(ThreadTeam& team, size_t bytes, double seconds = 0.4);

// Best of several runs of independent multiply-adds in registers, during about `seconds`.
double measure_f32_gflop_s(ThreadTeam& team, double seconds = 0.2);

// Both, in under a second.
Roofline measure_roofline(ThreadTeam& team, size_t read_bytes = size_t{256} << 20);

}  // namespace atb
