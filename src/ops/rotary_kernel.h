// SPDX-License-Identifier: Apache-2.0
// CPU kernel of rotary and rotary_embedding.
#pragma once

#include <memory>

#include "ir/kernel.h"

namespace atb {

// Rotates inputs 0 .. tensors - 1 into the outputs of the same index; cos and sin are the next two inputs. Null unless
// all are f32.
std::unique_ptr<Kernel> make_rotary_kernel(const KernelRequest& request, int tensors);

}  // namespace atb
