// SPDX-License-Identifier: Apache-2.0
// CPU kernel of flash_attention_kv.
#pragma once

#include <memory>

#include "ir/kernel.h"

namespace atb {

// Null unless q, and the mask if there is one, are f32. Errors: kInternal without a cache layout, or where it disagrees
// with the shapes.
std::unique_ptr<Kernel> make_flash_attention_kv_kernel(const KernelRequest& request);

}  // namespace atb
