// SPDX-License-Identifier: Apache-2.0
// How much the library says, and where it goes. Lines have one form, "[where] text".
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "atb/export.h"

namespace atb {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

ATB_API void set_log_level(LogLevel level);  // default kWarning
ATB_API LogLevel log_level();
ATB_API LogLevel log_level_from_name(std::string_view name);  // "debug" ... "off"; kInvalidArgument otherwise
// Replaces the sink (null: stderr). Called under a lock, from any thread.
ATB_API void set_log_sink(std::function<void(LogLevel, const std::string&)> sink);

}  // namespace atb
