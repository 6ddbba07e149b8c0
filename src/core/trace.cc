// SPDX-License-Identifier: Apache-2.0
// Trace Event Format writer ("JSON Object Format" with complete events, ph = X; times in microseconds).
#include "core/trace.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <tuple>

#include "core/error.h"

namespace atb {
namespace {

std::string quoted(const std::string& text) {
  // Names may come from files: bytes that are not UTF-8 become U+FFFD.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Nanoseconds as microseconds with three decimals.
std::string microseconds(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%lld.%03d", static_cast<long long>(ns / 1000), static_cast<int>(ns % 1000));
  return text;
}

}  // namespace

Trace::Trace(size_t capacity) : capacity_(capacity) {}

void Trace::enable() {
  if (!events_) events_ = std::make_unique<Event[]>(capacity_);
  enabled_.store(true, std::memory_order_release);
}

int64_t Trace::now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

uint32_t Trace::intern(const TraceLabel& label) {
  const std::lock_guard lock(mutex_);
  return numbers_.try_emplace(label, static_cast<uint32_t>(numbers_.size())).first->second;
}

void Trace::record(uint32_t label, int64_t begin_ns, int64_t end_ns, int worker, int64_t rows) noexcept {
  if (!enabled()) return;
  const size_t slot = claimed_.fetch_add(1, std::memory_order_relaxed);
  if (slot >= capacity_) return;
  events_[slot] = {begin_ns, std::max<int64_t>(0, end_ns - begin_ns), rows, label, worker};
}

size_t Trace::size() const noexcept { return std::min(claimed_.load(std::memory_order_relaxed), capacity_); }

size_t Trace::dropped() const noexcept { return claimed_.load(std::memory_order_relaxed) - size(); }

void Trace::clear() noexcept { claimed_.store(0, std::memory_order_relaxed); }

std::vector<TraceEvent> Trace::events() const {
  const size_t known = labels().size();
  std::vector<TraceEvent> result(events_.get(), events_.get() + size());
  std::erase_if(result, [&](const TraceEvent& event) { return event.label >= known; });  // not numbers of intern()
  std::sort(result.begin(), result.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::tuple(a.worker, a.begin_ns, -a.duration_ns) < std::tuple(b.worker, b.begin_ns, -b.duration_ns);
  });
  return result;
}

std::vector<TraceLabel> Trace::labels() const {
  const std::lock_guard lock(mutex_);
  std::vector<TraceLabel> labels(numbers_.size());
  for (const auto& [label, number] : numbers_) labels[number] = label;
  return labels;
}

namespace {

// The start of a label's events up to "args":{ and what is constant in there.
std::string fragment_of(const TraceLabel& label) {
  std::string text =
      "{\"ph\":\"X\",\"pid\":1,\"name\":" + quoted(label.name) + ",\"cat\":" + quoted(label.category) + ",\"args\":{";
  std::string separator;
  const auto add = [&](const char* key, const std::string& value) {
    text += separator + "\"" + key + "\":" + value;
    separator = ",";
  };
  if (label.layer >= 0) add("layer", std::to_string(label.layer));
  if (!label.op.empty()) add("op", quoted(label.op));
  if (!label.variant.empty()) add("variant", quoted(label.variant));
  return text;
}

void write_thread_name(std::ostream& out, int32_t worker) {
  out << ",\n"
      << R"({"ph":"M","pid":1,"tid":)" << worker << R"(,"name":"thread_name","args":{"name":"worker )" << worker
      << (worker == 0 ? " (caller)" : "") << "\"}}";
}

// One end of the arrow from the launch of a step (ph = s, on worker 0) to a worker that it wakes (ph = f).
void write_flow(std::ostream& out, char phase, size_t id, int32_t worker, int64_t ns) {
  out << ",\n"
      << R"({"ph":")" << phase << R"(","pid":1,"name":"launch","cat":"launch","id":)" << id << ",\"tid\":" << worker
      << ",\"ts\":" << microseconds(ns) << (phase == 'f' ? ",\"bp\":\"e\"}" : "}");
}

}  // namespace

void Trace::write(std::ostream& out) const {
  std::vector<std::string> fragments;
  std::vector<bool> wakes;
  for (const TraceLabel& label : labels()) {
    fragments.push_back(fragment_of(label));
    wakes.push_back(label.category == "wake");
  }
  const std::vector<TraceEvent> sorted = events();
  int64_t origin = std::numeric_limits<int64_t>::max();
  std::set<int32_t> workers;
  std::vector<int64_t> launches;  // of the wake-ups, in the order of the events
  for (const TraceEvent& event : sorted) {
    origin = std::min(origin, event.begin_ns);
    workers.insert(event.worker);
    if (wakes[event.label]) launches.push_back(event.begin_ns);
  }
  out << "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped_events\":" << dropped() << "},\"traceEvents\":[\n"
      << R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"atb"}})";
  for (const int32_t worker : workers) write_thread_name(out, worker);
  for (size_t i = 0; i < launches.size(); ++i) write_flow(out, 's', i, 0, launches[i] - origin);
  size_t arrow = 0;
  for (const TraceEvent& event : sorted) {
    const std::string& fragment = fragments[event.label];
    out << ",\n" << fragment;
    if (event.rows >= 0) out << (fragment.back() == '{' ? "" : ",") << "\"rows\":" << event.rows;
    out << "},\"tid\":" << event.worker << ",\"ts\":" << microseconds(event.begin_ns - origin)
        << ",\"dur\":" << microseconds(event.duration_ns) << '}';
    if (wakes[event.label]) write_flow(out, 'f', arrow++, event.worker, event.begin_ns - origin);
  }
  out << "\n]}\n";
}

void Trace::save(const std::string& path) const {
  std::ofstream out(path, std::ios::trunc);
  require(out.is_open(), Code::kNotFound, "[trace] cannot open ", path, " for writing; check the directory");
  write(out);
  out.close();
  require(!out.fail(), Code::kDataLoss, "[trace] writing ", path, " failed; check the space left on the disk");
}

}  // namespace atb
