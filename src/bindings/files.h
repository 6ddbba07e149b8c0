// SPDX-License-Identifier: Apache-2.0
// Functions on model files.
#pragma once

#include <nanobind/nanobind.h>

namespace atb {

// Functions on files that need no engine: inspect, explain, metadata, look-up of hub names.
void bind_files(nanobind::module_& module);

}  // namespace atb
