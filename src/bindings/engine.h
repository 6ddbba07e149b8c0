// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace atb {

void bind_engine(nanobind::module_& module);

}  // namespace atb
