// SPDX-License-Identifier: Apache-2.0
// Python class of the arrays that ATB returns.
#pragma once

#include <nanobind/nanobind.h>

namespace atb {

// Tensor: DLPack (both forms), the buffer protocol, shape, dtype. Shares its memory with whoever imports it.
void bind_tensor(nanobind::module_& module);

}  // namespace atb
