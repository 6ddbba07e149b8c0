// SPDX-License-Identifier: Apache-2.0
// Python classes of graphs and compiled graphs.
#pragma once

#include <nanobind/nanobind.h>

namespace atb {

void bind_graph(nanobind::module_& module);

}  // namespace atb
