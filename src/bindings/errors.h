// SPDX-License-Identifier: Apache-2.0
// Exceptions of the module.
#pragma once

#include <nanobind/nanobind.h>

namespace atb {

// Makes the exception classes of the module and translates atb::Error into them.
void bind_errors(nanobind::module_& module);

}  // namespace atb
