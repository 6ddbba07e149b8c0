// SPDX-License-Identifier: Apache-2.0
// Runs an operator's own definition in plain loops where a device has no kernel for it.
#pragma once

#include <memory>

#include "ir/kernel.h"

namespace atb {

// One unit, on one worker; slow and right. Inputs may be strided. For operators without state.
std::unique_ptr<Kernel> make_fallback_kernel(const Node& node);

}  // namespace atb
