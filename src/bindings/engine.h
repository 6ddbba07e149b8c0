// SPDX-License-Identifier: Apache-2.0
// Python class of the engine: requests, logits, figures.
#pragma once

#include <nanobind/nanobind.h>

namespace atb {

void bind_engine(nanobind::module_& module);

}  // namespace atb
