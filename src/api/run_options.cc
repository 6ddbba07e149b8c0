// SPDX-License-Identifier: Apache-2.0
#include "api/run_options.h"

#include "core/error.h"

namespace atb {

Precision precision_named(const std::string& name, Precision automatic, std::string_view where) {
  if (name == "auto") return automatic;
  if (name == "exact") return Precision::kExact;
  require(name == "fast", Code::kInvalidArgument, "[", where, "] precision '", name,
          "'; allowed are auto, exact, fast");
  return Precision::kFast;
}

const Device& running_device(const std::string& name, std::string_view what, std::string_view advice) {
  const Device& device = find_device(name);
  require(device.computes(), Code::kUnsupported, "[device] '", name, "' computes nothing, so ", what,
          " cannot run on it: use cpu", advice);
  return device;
}

}  // namespace atb
