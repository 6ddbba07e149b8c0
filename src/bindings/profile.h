// SPDX-License-Identifier: Apache-2.0
// Where the time of a running trace went.
#pragma once

#include <nanobind/nanobind.h>

namespace atb {

void bind_profile(nanobind::module_& module);

}  // namespace atb
