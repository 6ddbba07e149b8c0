// SPDX-License-Identifier: Apache-2.0
// A device whose kernels do nothing: plans, schedules and memory can be tested for models that no machine here could
// run.
#pragma once

#include "devices/device.h"

namespace atb {

const Device& null_device();

}  // namespace atb
