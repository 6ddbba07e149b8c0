// SPDX-License-Identifier: Apache-2.0
#include "runtime/executor.h"

#include <algorithm>
#include <string>
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

// Cutting work below this cost (see Kernel::cost; some 2 us) takes longer than it saves: one worker does it.
constexpr double kSmallestPart = 32768;

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
  const double cost = kernel.cost(call, phase);
  const int64_t wanted = team_.size() * (kernel.wants_whole_range(call, phase) ? 1 : kPartsPerWorker);
  const double worthwhile = std::max(1.0, cost / kSmallestPart);
  const int64_t most = worthwhile < static_cast<double>(wanted) ? static_cast<int64_t>(worthwhile) : wanted;
  tasks_.push_back({item, phase, units, std::min(units, most), cost});
}

// Phase p of all nodes of a stage forms one group, the largest task first, so that small ones fill up its end; the next
// group starts when all parts of this one are done. Phases without units are left out.
void Executor::list_tasks(const Program& program, const Frame& frame) {
  tasks_.clear();
  groups_.clear();
  segments_.assign(1, {});
  for (const std::vector<int>& stage : program.stages()) {
    int phases = 0;
    for (int index : stage) phases = std::max(phases, program.items()[static_cast<size_t>(index)].kernel->phases());
    for (int phase = 0; phase < phases; ++phase) {
      const size_t begin = tasks_.size();
      for (int index : stage) {
        const size_t i = static_cast<size_t>(index);
        add_task(*program.items()[i].kernel, frame.items[i].call, index, phase);
      }
      if (begin == tasks_.size()) continue;
      std::stable_sort(tasks_.begin() + static_cast<std::ptrdiff_t>(begin), tasks_.end(),
                       [](const Task& a, const Task& b) { return a.cost > b.cost; });
      groups_.emplace_back(begin, tasks_.size());
    }
    segments_.back().end = groups_.size();
    for (int index : stage) {
      if (program.items()[static_cast<size_t>(index)].host) segments_.back().host_items.push_back(index);
    }
    if (!segments_.back().host_items.empty()) segments_.push_back({groups_.size(), groups_.size(), {}});
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

Executor::Executor(ThreadTeam& team) : team_(team) {}

void Executor::prepare(const Program& program, Frame& frame, std::span<const SequenceStep> sequences, int64_t slots) {
  fault_.store(false);
  const size_t each = sequences.size() / static_cast<size_t>(slots);
  for (size_t i = 0; i < frame.items.size(); ++i) {
    const Node& node = *program.items()[i].node;
    const bool apart = slots > 1 && node.op().has_state;
    Call& call = frame.items[i].call;
    call.sequences = apart ? sequences.subspan(each * static_cast<size_t>(node.attrs().integer("slot")), each)
                           : sequences.first(each);
    call.fault = &fault_;
  }
  reserve_scratch(program, frame);
  list_tasks(program, frame);
}

// Takes parts of the task until none is left. Whoever is free takes them: a worker that the system holds back is waited
// for only while it is inside a part. Returns how many parts this worker has run.
int64_t Executor::run_parts(const Kernel& kernel, const Call& call, const Task& task, Cursor& cursor,
                            int worker) noexcept {
  std::byte* scratch = worker_scratch_[static_cast<size_t>(worker)].data();
  if (team_.size() == 1) {
    kernel.run(call, task.phase, 0, task.units, scratch);
    return 1;
  }
  for (int64_t taken = 0;; ++taken) {
    const int64_t part = cursor.next.fetch_add(1, std::memory_order_relaxed);
    if (part >= task.parts) return taken;
    const int64_t begin = task.units * part / task.parts;
    const int64_t end = task.units * (part + 1) / task.parts;
    kernel.run(call, task.phase, begin, end, scratch);
    cursor.done.fetch_add(1, std::memory_order_release);
  }
}

void Executor::run_task(const Program& program, const Frame& frame, size_t task, int worker, Trace* trace) noexcept {
  const size_t item = static_cast<size_t>(tasks_[task].item);
  const Kernel& kernel = *program.items()[item].kernel;
  const Call& call = frame.items[item].call;
  const int64_t begin_ns = trace == nullptr ? 0 : Trace::now_ns();
  const int64_t taken = run_parts(kernel, call, tasks_[task], cursors_[task], worker);
  if (trace == nullptr || taken == 0) return;
  const int64_t rows = call.outputs.empty() ? -1 : call.outputs[0].rows();
  trace->record(labels_[item].work, begin_ns, Trace::now_ns(), worker, rows);
}

// Returns when every part of the task has been run, by whomever.
void Executor::wait_for(size_t task, int worker, Trace* trace) noexcept {
  if (team_.size() == 1) return;
  const int64_t parts = tasks_[task].parts;
  const Cursor& cursor = cursors_[task];
  const int most_spins = team_.spins();
  if (cursor.done.load(std::memory_order_acquire) == parts) return;
  const int64_t begin_ns = trace == nullptr ? 0 : Trace::now_ns();
  for (int spins = 0; cursor.done.load(std::memory_order_acquire) < parts; ++spins) {
    if (spins < most_spins) {
      cpu_pause();
    } else {
      std::this_thread::yield();
    }
  }
  if (trace == nullptr) return;
  trace->record(labels_[static_cast<size_t>(tasks_[task].item)].wait, begin_ns, Trace::now_ns(), worker);
}

void Executor::work(const Program& program, const Frame& frame, const Segment& segment, int worker, Trace* trace) {
  if (trace != nullptr && worker > 0) {
    trace->record(team_.was_parked(worker) ? parked_label_ : wake_label_, launch_ns_, Trace::now_ns(), worker);
  }
  for (size_t group = segment.begin; group < segment.end; ++group) {
    const auto [begin, end] = groups_[group];
    for (size_t t = begin; t < end; ++t) run_task(program, frame, t, worker, trace);
    for (size_t t = begin; t < end; ++t) wait_for(t, worker, trace);
  }
}

// Names each node and the code that will run for it in this step.
void Executor::label_items(const Program& program, const Frame& frame, Trace& trace) {
  wake_label_ = trace.intern({.name = "wake-up", .category = "wake"});
  parked_label_ = trace.intern({.name = std::string(kWakeFromPark), .category = "wake"});
  finish_label_ = trace.intern({.name = "last worker", .category = "wait"});
  launch_label_ = trace.intern({.name = "launch", .category = "launch"});
  labels_.clear();
  for (size_t i = 0; i < program.items().size(); ++i) {
    const Program::Item& item = program.items()[i];
    const TraceLabel label{.name = item.node->name(),
                           .category = "node",
                           .op = item.node->op_name(),
                           .variant = item.kernel->variant(frame.items[i].call),
                           .layer = item.node->layer()};
    const uint32_t work = trace.intern(label);
    const uint32_t wait =
        trace.intern({.name = std::string(kWaitFor) + label.name, .category = "wait", .layer = label.layer});
    labels_.push_back({work, wait});
  }
}

void Executor::run(const Program& program, Frame& frame, std::span<const SequenceStep> sequences, Trace* trace,
                   int64_t slots) {
  if (trace != nullptr && !trace->enabled()) trace = nullptr;
  prepare(program, frame, sequences, slots);
  if (trace != nullptr) label_items(program, frame, *trace);
  for (const Segment& segment : segments_) {
    if (segment.begin < segment.end) launch(program, frame, segment, trace);
    require(!fault_.load(), Code::kInvalidArgument, "[executor] ", program.graph().name(),
            ": an id lies outside its table, or a value is one that its operator cannot take; the results are "
            "discarded");
    for (const int item : segment.host_items) run_host(program, frame, item, trace);
  }
}

void Executor::launch(const Program& program, const Frame& frame, const Segment& segment, Trace* trace) {
  if (trace == nullptr) return team_.run([&](int worker) { work(program, frame, segment, worker, nullptr); });
  launch_ns_ = Trace::now_ns();
  int64_t finished_ns = 0;  // when the caller had done its part
  team_.run([&](int worker) {
    work(program, frame, segment, worker, trace);
    if (worker == 0) finished_ns = Trace::now_ns();
  });
  if (team_.size() > 1) trace->record(finish_label_, finished_ns, Trace::now_ns(), 0);
  trace->record(launch_label_, launch_ns_, Trace::now_ns(), 0);
}

void Executor::run_host(const Program& program, const Frame& frame, int item, Trace* trace) {
  const size_t index = static_cast<size_t>(item);
  const Program::Item& host = program.items()[index];
  std::vector<TensorView> inputs = frame.items[index].inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (host.constants[i] != nullptr) inputs[i].data = const_cast<std::byte*>(host.constants[i].get());
    require(inputs[i].data != nullptr || inputs[i].size() == 0, Code::kUnsupported, "[external] ", host.node->name(),
            ": input ", i,
            " is a view of a constant that is encoded or not in one piece; let the pattern match the view too");
  }
  using Memory = std::pair<std::shared_ptr<const void>, std::vector<std::shared_ptr<const std::byte>>>;
  const int64_t begin_ns = trace == nullptr ? 0 : Trace::now_ns();
  host.host({*host.node, inputs, frame.items[index].outputs, std::make_shared<Memory>(frame.memory, host.constants)});
  if (trace != nullptr) trace->record(labels_[index].work, begin_ns, Trace::now_ns(), 0);
}

size_t Executor::scratch_bytes() const {
  size_t bytes = scratch_.size();
  for (const AlignedBuffer& buffer : worker_scratch_) bytes += buffer.size();
  return bytes;
}

}  // namespace atb
