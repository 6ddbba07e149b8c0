// SPDX-License-Identifier: Apache-2.0
// Kernels that are Python callables.
#pragma once

#include <nanobind/nanobind.h>

#include "runtime/host_kernel.h"

namespace atb {

// Kernels of a dict from names to callables. A callable gets one LentTensor an input, and returns one array, or a tuple
// or list of them: as many as the node has outputs, with their dtypes and shapes; they are copied. kInvalidArgument
// names the kernel, and what it gave instead.
HostKernels host_kernels_from(const nanobind::dict& kernels);

}  // namespace atb
