// SPDX-License-Identifier: Apache-2.0
// Python class of the arrays that ATB returns.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "core/tensor.h"

namespace atb {

// An array that a kernel in Python may read during its call.
struct LentTensor {
  TensorView view;
  std::shared_ptr<const void> memory;  // alive as long as this is
};

// Tensor: DLPack (both forms), the buffer protocol, shape, dtype. Shares its memory with whoever imports it.
void bind_tensor(nanobind::module_& module);

}  // namespace atb
