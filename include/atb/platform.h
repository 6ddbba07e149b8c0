// SPDX-License-Identifier: Apache-2.0
// This build on this machine: version, instruction sets, devices, CPUs and memory that the process may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atb/export.h"

namespace atb {

ATB_API std::string_view version();  // "0.1.0"

struct PlatformInfo {
  std::string cpu_target;                     // SIMD target that kernels use; the names are Highway's
  std::vector<std::string> usable_targets;    // compiled in and run by this CPU, best first
  std::vector<std::string> compiled_targets;  // of this build, best first
  std::string cpu_problem;                    // why this CPU cannot run the kernels; empty: it can
  std::vector<std::string> devices;           // names for LanguageModelOptions::device
  int affinity_cpus = 0;                      // CPUs that the affinity mask leaves
  std::optional<double> cpu_quota;            // CPUs' worth of time that the control group grants
  int threads = 0;                            // worker threads of a model that is asked for none in particular
  uint64_t available_bytes = 0;               // memory that can still be allocated, control group included
  std::optional<uint64_t> cgroup_bytes;       // what the control group's memory limit alone would leave
};

// What the process may use now. Works, and says so, where the kernels cannot run.
ATB_API PlatformInfo platform_info();

}  // namespace atb
