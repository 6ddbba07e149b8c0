// SPDX-License-Identifier: Apache-2.0
// CPU kernel of flash_attention (no cache).
#pragma once

#include <memory>

#include "ir/kernel.h"

namespace atb {

// Null unless all inputs are f32.
std::unique_ptr<Kernel> make_flash_attention_kernel(const KernelRequest& request);

}  // namespace atb
