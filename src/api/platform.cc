// SPDX-License-Identifier: Apache-2.0
// What the lower layers know about this build and this machine, in one place.
#include "atb/platform.h"

#include "core/cgroup.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/thread_team.h"
#include "devices/device.h"
#include "kernels/target.h"

namespace atb {
namespace {

std::vector<std::string> strings(const std::vector<std::string_view>& names) { return {names.begin(), names.end()}; }

std::string cpu_problem() {
  try {
    require_cpu_target();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

std::string_view version() { return ATB_VERSION; }

PlatformInfo platform_info() {
  PlatformInfo info;
  info.cpu_target = cpu_target_name();
  info.usable_targets = strings(cpu_targets());
  info.compiled_targets = strings(compiled_cpu_targets());
  info.cpu_problem = cpu_problem();
  for (const Device* device : devices()) info.devices.emplace_back(device->name());
  info.affinity_cpus = affinity_cpus();
  info.cpu_quota = cgroup_cpu_quota();
  info.threads = default_threads();
  info.available_bytes = available_memory_bytes();
  info.cgroup_bytes = cgroup_memory_headroom();
  return info;
}

}  // namespace atb
