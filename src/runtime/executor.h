// SPDX-License-Identifier: Apache-2.0
// Runs one step of a program as one launch: workers wake once, walk the stages, and wait between
// phases only for the parts that are still running.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "core/memory.h"
#include "core/thread_team.h"
#include "core/trace.h"
#include "runtime/plan.h"
#include "runtime/program.h"

namespace atb {

class Executor {
 public:
  explicit Executor(ThreadTeam& team);

  // Runs all stages on `frame`, as one launch but for host kernels: those run between launches, on the calling thread,
  // and what they throw ends the run. `sequences` is the ragged step (empty without state). One run at a time. Throws
  // kInvalidArgument after the walk if a kernel met a value that it cannot take, such as an id outside its table; state
  // values are then undefined and the caller drops the step.
  // Where every slot of the cache has blocks and a length of its own, `slots` says how many there are: `sequences` then
  // holds as many lists of one length, that of slot 0 first, and a node with state gets the list of its slot.
  void run(const Program& program, Frame& frame, std::span<const SequenceStep> sequences, Trace* trace = nullptr,
           int64_t slots = 1);

  size_t scratch_bytes() const;

 private:
  // One phase of one node in this step.
  struct Task {
    int item;
    int phase;
    int64_t units;
    int64_t parts;  // what the units are cut into; workers take one at a time
    double cost;    // of all units
  };
  // Parts of a task that are taken and that are finished, alone on their cache lines.
  struct Cursor {
    alignas(64) std::atomic<int64_t> next{0};
    alignas(64) std::atomic<int64_t> done{0};
  };

  // Groups that one launch runs, and the items of host kernels that run after it.
  struct Segment {
    size_t begin;
    size_t end;
    std::vector<int> host_items;
  };

  void prepare(const Program& program, Frame& frame, std::span<const SequenceStep> sequences, int64_t slots);
  void reserve_scratch(const Program& program, Frame& frame);
  void add_task(const Kernel& kernel, const Call& call, int item, int phase);
  void list_tasks(const Program& program, const Frame& frame);
  void label_items(const Program& program, const Frame& frame, Trace& trace);
  void launch(const Program& program, const Frame& frame, const Segment& segment, Trace* trace);
  void run_host(const Program& program, const Frame& frame, int item, Trace* trace);
  void work(const Program& program, const Frame& frame, const Segment& segment, int worker, Trace* trace);
  int64_t run_parts(const Kernel& kernel, const Call& call, const Task& task, Cursor& cursor, int worker) noexcept;
  void run_task(const Program& program, const Frame& frame, size_t task, int worker, Trace* trace) noexcept;
  void wait_for(size_t task, int worker, Trace* trace) noexcept;

  ThreadTeam& team_;
  std::vector<Task> tasks_;
  std::vector<std::pair<size_t, size_t>> groups_;  // [begin, end) of tasks that run side by side
  std::vector<Segment> segments_;
  std::unique_ptr<Cursor[]> cursors_;
  size_t num_cursors_ = 0;
  AlignedBuffer scratch_;                      // shared by the phases of a stage's nodes
  std::vector<AlignedBuffer> worker_scratch_;  // one a worker
  // While tracing: labels of each item's work and of waiting for it, and when the workers were launched.
  struct ItemLabels {
    uint32_t work;
    uint32_t wait;
  };
  std::vector<ItemLabels> labels_;
  uint32_t wake_label_ = 0;
  uint32_t parked_label_ = 0;
  uint32_t finish_label_ = 0;
  uint32_t launch_label_ = 0;
  int64_t launch_ns_ = 0;
  std::atomic<bool> fault_{false};
};

}  // namespace atb
