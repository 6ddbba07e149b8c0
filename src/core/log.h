// SPDX-License-Identifier: Apache-2.0
// Log lines of one form: "[Where] text", one line each, to stderr or to a sink (tests, Python logging).
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace atb {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

void set_log_level(LogLevel level);  // default kWarning
LogLevel log_level();
LogLevel log_level_from_name(std::string_view name);  // "debug" ... "off"; kInvalidArgument otherwise
// Replaces the sink (null: stderr). Called under a lock, from any thread.
void set_log_sink(std::function<void(LogLevel, const std::string&)> sink);
void log(LogLevel level, std::string_view where, std::string_view text);  // prints "[where] text"

}  // namespace atb
