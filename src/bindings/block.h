// SPDX-License-Identifier: Apache-2.0
// Python class of declared blocks.
#pragma once

#include <nanobind/nanobind.h>

namespace atb {

// Block, and item_kinds(); Graph must be bound before.
void bind_block(nanobind::module_& module);

}  // namespace atb
