// SPDX-License-Identifier: Apache-2.0
#include "bindings/doctor.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "atb/platform.h"
#include "models/resolve.h"

namespace atb {

namespace nb = nanobind;

namespace {

nb::dict platform_dict() {
  const PlatformInfo info = platform_info();
  nb::dict result;
  result["cpu_target"] = info.cpu_target;
  result["usable_targets"] = info.usable_targets;
  result["compiled_targets"] = info.compiled_targets;
  result["cpu_problem"] = info.cpu_problem;
  result["devices"] = info.devices;
  result["affinity_cpus"] = info.affinity_cpus;
  result["cpu_quota"] = info.cpu_quota;
  result["threads"] = info.threads;
  result["available_bytes"] = info.available_bytes;
  result["cgroup_bytes"] = info.cgroup_bytes;
  result["model_cache"] = model_cache_directory();
  return result;
}

}  // namespace

void bind_doctor(nb::module_& module) {
  module.def("version", &version);
  module.def("platform_info", &platform_dict, nb::sig("def platform_info() -> dict[str, typing.Any]"),
             "What this process may use of the machine; None where there is no limit.");
}

}  // namespace atb
