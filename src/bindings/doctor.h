// SPDX-License-Identifier: Apache-2.0
// What `atb doctor` asks the library: its version, and this machine as it sees it.
#pragma once

#include <nanobind/nanobind.h>

namespace atb {

void bind_doctor(nanobind::module_& module);

}  // namespace atb
