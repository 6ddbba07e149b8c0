// SPDX-License-Identifier: Apache-2.0
// Python class that front doors build plain graphs with.
#pragma once

#include <nanobind/nanobind.h>

namespace atb {

// GraphBuilder and its BuilderValue; Graph must be bound before.
void bind_graph_builder(nanobind::module_& module);

}  // namespace atb
