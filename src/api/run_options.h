// SPDX-License-Identifier: Apache-2.0
// Options that language models and compiled graphs have in common.
#pragma once

#include <string>
#include <string_view>

#include "devices/device.h"
#include "ir/kernel.h"

namespace atb {

// "auto" gives `automatic`; else "exact" or "fast". kInvalidArgument "[where] precision ..." otherwise.
Precision precision_named(const std::string& name, Precision automatic, std::string_view where);

// find_device, and kUnsupported for one that computes nothing: `what` ("a model") cannot run on it. `advice` ends the
// message.
const Device& running_device(const std::string& name, std::string_view what, std::string_view advice = {});

}  // namespace atb
