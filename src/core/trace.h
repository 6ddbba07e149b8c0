// SPDX-License-Identifier: Apache-2.0
// Records what ran when, and writes it in the Trace Event JSON that Chrome and Perfetto open.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace atb {

// Names that the executor gives and the profile looks for: waiting for the node named after it, waking a worker that
// had gone to sleep.
constexpr std::string_view kWaitFor = "wait for ";
constexpr std::string_view kWakeFromPark = "wake-up from park";

// What events of one kind have in common.
struct TraceLabel {
  std::string name;          // shown on the bar: the node's name
  std::string category;      // "kernel", "step", "sample", ...
  std::string op = {};       // operator; empty: left out
  std::string variant = {};  // the code that ran, as Kernel::variant says; empty: left out
  int layer = -1;            // -1: left out
  friend auto operator<=>(const TraceLabel&, const TraceLabel&) = default;
};

struct TraceEvent {
  int64_t begin_ns;
  int64_t duration_ns;
  int64_t rows;    // -1: not given
  uint32_t label;  // index into Trace::labels()
  int32_t worker;
};

// A bounded record of events. Off it costs one relaxed load; on, an event takes a slot of a buffer made beforehand
// (no lock, no allocation). Events beyond the capacity are counted and dropped.
class Trace {
 public:
  explicit Trace(size_t capacity = size_t{1} << 18);  // events; 32 bytes each, allocated when first enabled

  bool enabled() const noexcept { return enabled_.load(std::memory_order_acquire); }
  void enable();
  void disable() noexcept { enabled_.store(false, std::memory_order_release); }

  // Monotonic time in ns, for record().
  static int64_t now_ns() noexcept;
  // Number of a label, the same for equal labels. Any thread; takes a lock, so do it outside of kernels.
  uint32_t intern(const TraceLabel& label);
  // One event on worker `worker` (the row it is drawn in); `rows` < 0 is left out. Any thread. Nothing when disabled.
  void record(uint32_t label, int64_t begin_ns, int64_t end_ns, int worker, int64_t rows = -1) noexcept;

  // The following must not run at the same time as record().
  size_t size() const noexcept;
  size_t dropped() const noexcept;
  void clear() noexcept;
  std::vector<TraceEvent> events() const;  // by worker, then by time, an enclosing event before those inside it
  std::vector<TraceLabel> labels() const;  // by number
  void write(std::ostream& out) const;
  void save(const std::string& path) const;  // kNotFound when the file cannot be opened, kDataLoss when writing fails

 private:
  using Event = TraceEvent;
  const size_t capacity_;
  std::atomic<bool> enabled_{false};
  std::atomic<size_t> claimed_{0};  // slots asked for; those beyond the capacity were dropped
  std::unique_ptr<Event[]> events_;
  mutable std::mutex mutex_;  // guards the labels
  std::map<TraceLabel, uint32_t> numbers_;
};

}  // namespace atb
