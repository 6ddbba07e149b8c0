// SPDX-License-Identifier: Apache-2.0
#include "runtime/executor.h"

#include <algorithm>
#include <thread>

#include "core/cpu_pause.h"
#include "core/error.h"
#include "ir/op.h"

namespace atb {
namespace {

size_t aligned(size_t bytes) { return align_up(bytes, kMemoryAlignment); }

// A phase is cut into this many parts a worker, so that a disturbed core gets less of it. Kernels that read far streams
// get one part a worker.
constexpr int64_t kPartsPerWorker = 8;

// Pauses before the core is given to whoever may be holding a part; few where there are more threads than cores.
constexpr int kSpins = 300;
constexpr int kSpinsOversubscribed = 20;

}  // namespace

// Scratch depends on actual sizes (a longer context needs more attention partials): it is reserved before the launch
// and only ever grows.
void Executor::reserve_scratch(const Program& program, Frame& frame) {
  size_t shared = 0;
  size_t per_worker = 0;
  std::vector<size_t> offset(frame.items.size());
  for (const std::vector<int>& stage : program.stages()) {
    size_t used = 0;
    for (int index : stage) {
      const Kernel& kernel = *program.items()[static_cast<size_t>(index)].kernel;
      const Call& call = frame.items[static_cast<size_t>(index)].call;
      offset[static_cast<size_t>(index)] = used;
      used += aligned(kernel.scratch_bytes(call));
      per_worker = std::max(per_worker, aligned(kernel.worker_scratch_bytes(call)));
    }
    shared = std::max(shared, used);
  }
  if (scratch_.size() < shared) scratch_ = AlignedBuffer(shared + shared / 4, "executor");
  worker_scratch_.resize(static_cast<size_t>(team_.size()));
  for (AlignedBuffer& buffer : worker_scratch_) {
    if (buffer.size() < per_worker) buffer = AlignedBuffer(per_worker, "executor");
  }
  for (size_t i = 0; i < frame.items.size(); ++i) frame.items[i].call.scratch = scratch_.data() + offset[i];
}

void Executor::add_task(const Kernel& kernel, const Call& call, int item, int phase) {
  const int64_t units = phase < kernel.phases() ? kernel.units(call, phase) : 0;
  if (units == 0) return;
  const int64_t wanted = team_.size() * (kernel.wants_whole_range(call, phase) ? 1 : kPartsPerWorker);
  bool last = true;
  for (int later = phase + 1; later < kernel.phases(); ++later) last = last && kernel.units(call, later) == 0;
  tasks_.push_back({item, phase, units, std::min(units, wanted), last});
}

// Phase p of all nodes of a stage forms one group; the next group starts after a barrier. Phases without units are left
// out, and their barriers with them.
void Executor::list_tasks(const Program& program, const Frame& frame) {
  tasks_.clear();
  groups_.clear();
  for (const std::vector<int>& stage : program.stages()) {
    int phases = 0;
    for (int index : stage) phases = std::max(phases, program.items()[static_cast<size_t>(index)].kernel->phases());
    for (int phase = 0; phase < phases; ++phase) {
      const size_t begin = tasks_.size();
      for (int index : stage) {
        const size_t i = static_cast<size_t>(index);
        add_task(*program.items()[i].kernel, frame.items[i].call, index, phase);
      }
      if (begin < tasks_.size()) groups_.emplace_back(begin, tasks_.size());
    }
  }
  if (num_cursors_ < tasks_.size()) {
    cursors_ = std::make_unique<Cursor[]>(tasks_.size());
    num_cursors_ = tasks_.size();
  }
  for (size_t i = 0; i < tasks_.size(); ++i) {
    cursors_[i].next.store(0, std::memory_order_relaxed);
    cursors_[i].done.store(0, std::memory_order_relaxed);
  }
}

Executor::Executor(ThreadTeam& team)
    : team_(team), spins_(team.size() > available_cpus() ? kSpinsOversubscribed : kSpins) {}

void Executor::prepare(const Program& program, Frame& frame, std::span<const SequenceStep> sequences) {
  fault_.store(false);
  for (Frame::Item& item : frame.items) {
    item.call.sequences = sequences;
    item.call.fault = &fault_;
  }
  reserve_scratch(program, frame);
  list_tasks(program, frame);
}

// Takes parts of the task until none is left. Whoever is free takes them: a worker that the system holds back is waited
// for only while it is inside a part.
void Executor::run_task(const Kernel& kernel, const Call& call, const Task& task, Cursor& cursor, int worker) noexcept {
  std::byte* scratch = worker_scratch_[static_cast<size_t>(worker)].data();
  if (team_.size() == 1) {
    kernel.run(call, task.phase, 0, task.units, scratch);
    return;
  }
  for (;;) {
    const int64_t part = cursor.next.fetch_add(1, std::memory_order_relaxed);
    if (part >= task.parts) return;
    const int64_t begin = task.units * part / task.parts;
    const int64_t end = task.units * (part + 1) / task.parts;
    kernel.run(call, task.phase, begin, end, scratch);
    cursor.done.fetch_add(1, std::memory_order_release);
  }
}

// Returns when every part of the task has been run, by whomever.
void Executor::wait_for(const Task& task, const Cursor& cursor) const noexcept {
  if (team_.size() == 1) return;
  for (int spins = 0; cursor.done.load(std::memory_order_acquire) < task.parts; ++spins) {
    if (spins < spins_) {
      cpu_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void Executor::work(const Program& program, const Frame& frame, int worker, Trace* trace) {
  const bool traced = trace != nullptr && worker == 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto [begin, end] = groups_[g];
    for (size_t t = begin; t < end; ++t) {
      const size_t index = static_cast<size_t>(tasks_[t].item);
      if (traced && begin_ns_[index] == 0) begin_ns_[index] = Trace::now_ns();
      run_task(*program.items()[index].kernel, frame.items[index].call, tasks_[t], cursors_[t], worker);
    }
    for (size_t t = begin; t < end; ++t) wait_for(tasks_[t], cursors_[t]);
    if (!traced) continue;
    for (size_t t = begin; t < end; ++t) {
      if (!tasks_[t].last) continue;
      const size_t index = static_cast<size_t>(tasks_[t].item);
      const std::vector<TensorView>& outputs = frame.items[index].outputs;
      trace->record(labels_[index], begin_ns_[index], Trace::now_ns(), worker,
                    outputs.empty() ? -1 : outputs[0].rows());
    }
  }
}

// Names each node and the code that will run for it in this step.
void Executor::label_items(const Program& program, const Frame& frame, Trace& trace) {
  labels_.clear();
  begin_ns_.assign(program.items().size(), 0);
  for (size_t i = 0; i < program.items().size(); ++i) {
    const Program::Item& item = program.items()[i];
    labels_.push_back(trace.intern({.name = item.node->name(),
                                    .category = "node",
                                    .op = item.node->op_name(),
                                    .variant = item.kernel->variant(frame.items[i].call),
                                    .layer = item.node->layer()}));
  }
}

void Executor::run(const Program& program, Frame& frame, std::span<const SequenceStep> sequences, Trace* trace) {
  prepare(program, frame, sequences);
  if (trace != nullptr && !trace->enabled()) trace = nullptr;
  if (trace != nullptr) label_items(program, frame, *trace);
  team_.run([&](int worker) { work(program, frame, worker, trace); });
  require(!fault_.load(), Code::kInternal, "[executor] ", program.graph().name(),
          ": a kernel could not finish; the step is discarded");
}

size_t Executor::scratch_bytes() const {
  size_t bytes = scratch_.size();
  for (const AlignedBuffer& buffer : worker_scratch_) bytes += buffer.size();
  return bytes;
}

}  // namespace atb
