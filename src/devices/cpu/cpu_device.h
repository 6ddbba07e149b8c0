// SPDX-License-Identifier: Apache-2.0
// The CPU: kernels come from the operators' own files.
#pragma once

#include "devices/device.h"

namespace atb {

const Device& cpu_device();

}  // namespace atb
