// SPDX-License-Identifier: Apache-2.0
// Writing to the log; its level and its sink are in atb/log.h.
#pragma once

#include <string_view>

#include "atb/log.h"

namespace atb {

void log(LogLevel level, std::string_view where, std::string_view text);  // prints "[where] text"

}  // namespace atb
