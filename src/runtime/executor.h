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

  // Runs all stages on `frame`. `sequences` is the ragged step (empty without state). One run at a time. Throws
  // kInternal after the walk if a kernel reported a fault; state values are then undefined and the caller drops the
  // step.
  void run(const Program& program, Frame& frame, std::span<const SequenceStep> sequences, Trace* trace = nullptr);

  size_t scratch_bytes() const;

 private:
  // One phase of one node in this step.
  struct Task {
    int item;
    int phase;
    int64_t units;
    int64_t parts;  // what the units are cut into; workers take one at a time
    bool last;      // no later phase of its node has units
  };
  // Parts of a task that are taken and that are finished, alone on their cache lines.
  struct Cursor {
    alignas(64) std::atomic<int64_t> next{0};
    alignas(64) std::atomic<int64_t> done{0};
  };

  void prepare(const Program& program, Frame& frame, std::span<const SequenceStep> sequences);
  void reserve_scratch(const Program& program, Frame& frame);
  void add_task(const Kernel& kernel, const Call& call, int item, int phase);
  void list_tasks(const Program& program, const Frame& frame);
  void label_items(const Program& program, const Frame& frame, Trace& trace);
  void work(const Program& program, const Frame& frame, int worker, Trace* trace);
  void run_task(const Kernel& kernel, const Call& call, const Task& task, Cursor& cursor, int worker) noexcept;

  void wait_for(const Task& task, const Cursor& cursor) const noexcept;

  ThreadTeam& team_;
  const int spins_;
  std::vector<Task> tasks_;
  std::vector<std::pair<size_t, size_t>> groups_;  // [begin, end) of tasks that run side by side
  std::unique_ptr<Cursor[]> cursors_;
  size_t num_cursors_ = 0;
  AlignedBuffer scratch_;                      // shared by the phases of a stage's nodes
  std::vector<AlignedBuffer> worker_scratch_;  // one a worker
  std::vector<uint32_t> labels_;               // trace labels by item, while tracing
  std::vector<int64_t> begin_ns_;              // when worker 0 came to an item, while tracing
  std::atomic<bool> fault_{false};
};

}  // namespace atb
