// SPDX-License-Identifier: Apache-2.0
// What every kernel must do, checked for one call: right values, equal bits however it is run, no writes elsewhere.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/case_registry.h"
#include "ops/kernel_run.h"

namespace atb::testing {

// Thread teams by size, made once.
class Teams {
 public:
  ThreadTeam& of(int threads);

 private:
  std::map<int, std::unique_ptr<ThreadTeam>> teams_;
};

// Results of plain loops.
struct Expected {
  std::vector<RefTensor<float>> f32;
  std::vector<RefTensor<double>> f64;
};

// Sentences that say what is wrong; none if all is right.
using Problems = std::vector<std::string>;

// Values against `expected`; splits, misalignment by 0 to 15 elements, 2 to 4 threads and in-place against the bits of
// one plain run. `n` chooses the misalignment and the number of threads.
Problems check_kernel(const SweptCase& swept, const OpCase& test, const Node& node, const Kernel& kernel,
                      const Expected& expected, int64_t n, Teams& teams);

// Case `swept` at size n on each target: its references against each other, and its kernel as above.
Problems check_case(const SweptCase& swept, int64_t n, std::span<const std::string_view> targets, Teams& teams);

}  // namespace atb::testing
