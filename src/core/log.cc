// SPDX-License-Identifier: Apache-2.0
// The process-wide log: one level, one sink, whole lines.
#include "core/log.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <utility>

#include "core/error.h"

namespace atb {
namespace {

constexpr std::array<std::string_view, 5> kLevelNames = {"debug", "info", "warning", "error", "off"};

std::atomic<LogLevel> g_level{LogLevel::kWarning};

struct Sink {
  std::mutex mutex;
  std::function<void(LogLevel, const std::string&)> write;
};

Sink& sink() {
  static Sink& instance = *new Sink;  // never destroyed: threads may log while the process ends
  return instance;
}

}  // namespace

void set_log_level(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }

LogLevel log_level() { return g_level.load(std::memory_order_relaxed); }

LogLevel log_level_from_name(std::string_view name) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (kLevelNames[i] == name) return static_cast<LogLevel>(i);
  }
  throw_error(Code::kInvalidArgument, "[log] level \"", name, "\": use debug, info, warning, error or off");
}

void set_log_sink(std::function<void(LogLevel, const std::string&)> write) {
  const std::lock_guard lock(sink().mutex);
  sink().write = std::move(write);
}

void log(LogLevel level, std::string_view where, std::string_view text) {
  if (level == LogLevel::kOff || level < log_level()) return;
  std::string line;
  line.reserve(where.size() + text.size() + 4);
  line.append("[").append(where).append("] ").append(text);
  const std::lock_guard lock(sink().mutex);
  if (sink().write) {
    sink().write(level, line);
    return;
  }
  line.push_back('\n');
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace atb
