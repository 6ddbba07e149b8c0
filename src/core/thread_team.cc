// SPDX-License-Identifier: Apache-2.0
// Thread team: workers that spin briefly, then yield, then park until the next run.
#include "core/thread_team.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core/cgroup.h"
#include "core/cpu_pause.h"
#include "core/error.h"

namespace atb {
namespace {

constexpr int kMaxThreads = 1024;
constexpr size_t kCacheLine = 64;
// Pauses before the first yield. A pause is 10-60 ns, so this covers the usual wait for a run (a few us).
constexpr int kSpins = 300;
// With more threads than CPUs the one waited for is likely not running: give the CPU away almost at once.
constexpr int kSpinsOversubscribed = 20;
// Yielding goes on for this long before parking: longer than the gap between two decode steps, where a wake-up from
// sleep would cost 10-90 us, and short enough that an idle process uses no CPU.
constexpr std::chrono::microseconds kYieldTime{2000};

// A counter that only grows (and wraps); threads wait for it to pass a value they have seen.
class alignas(kCacheLine) Epoch {
 public:
  uint32_t now() const { return value_.load(std::memory_order_acquire); }

  void advance() {
    // Either a sleeper's check of value_ sees this increment, or we see the sleeper: both sides are seq_cst.
    value_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) value_.notify_all();
  }

  // Returns true if the thread has slept.
  bool wait_past(uint32_t seen, int spins) {
    for (int i = 0; i < spins; ++i) {
      if (now() != seen) return false;
      cpu_pause();
    }
    const auto start = std::chrono::steady_clock::now();
    do {
      for (int i = 0; i < 8; ++i) {
        if (now() != seen) return false;
        sched_yield();
      }
    } while (std::chrono::steady_clock::now() - start < kYieldTime);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    value_.wait(seen, std::memory_order_seq_cst);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }

 private:
  std::atomic<uint32_t> value_{0};
  std::atomic<int32_t> sleepers_{0};
};

}  // namespace

int affinity_cpus() {
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {  // the kernel refuses a set smaller than its own
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cpus));
    if (set == nullptr) break;
    const size_t size = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    const int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int available_cpus() { return available_cpus_under({}); }

int available_cpus_under(const CgroupPaths& paths) {
  const int cpus = affinity_cpus();
  const auto quota = cgroup_cpu_quota(paths);
  if (!quota || *quota >= cpus) return cpus;
  return std::max(1, static_cast<int>(std::ceil(*quota)));
}

int default_threads() { return std::min(available_cpus(), kMaxThreads); }

struct ThreadTeam::Impl {
  explicit Impl(int count)
      : threads(count),
        spins(count > available_cpus() ? kSpinsOversubscribed : kSpins),
        owner(getpid()),
        parked(static_cast<size_t>(count)) {}

  void work(int worker) noexcept;
  void stop_and_join();
  bool foreign() const { return threads > 1 && getpid() != owner; }

  const int threads;
  const int spins;
  const pid_t owner;  // workers exist only in this process
  std::vector<std::thread> workers;
  const std::function<void(int)>* body = nullptr;
  bool stop = false;
  std::atomic<bool> running{false};
  Epoch start;  // advanced by the caller for each run, and to stop
  Epoch done;   // advanced by the last worker of a run
  alignas(kCacheLine) std::atomic<int> unfinished{0};
  // Whether each worker slept before its latest run; on a cache line of its own.
  struct alignas(kCacheLine) Parked {
    bool value = false;
  };
  std::vector<Parked> parked;
};

void ThreadTeam::Impl::work(int worker) noexcept {
  pthread_setname_np(pthread_self(), ("atb-" + std::to_string(worker)).c_str());
  for (uint32_t seen = 0;; ++seen) {
    parked[static_cast<size_t>(worker)].value = start.wait_past(seen, spins);
    if (stop) return;
    (*body)(worker);
    if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) done.advance();
  }
}

void ThreadTeam::Impl::stop_and_join() {
  stop = true;
  start.advance();
  for (std::thread& worker : workers) worker.join();
  workers.clear();
}

ThreadTeam::ThreadTeam(int threads) {
  require(threads >= 0 && threads <= kMaxThreads, Code::kInvalidArgument, "[threads] thread count is ", threads,
          ", allowed are 0 (one a CPU) to ", kMaxThreads);
  const int count = threads == 0 ? default_threads() : threads;
  impl_ = std::make_unique<Impl>(count);
  impl_->workers.reserve(static_cast<size_t>(count - 1));
  try {
    for (int i = 1; i < count; ++i) impl_->workers.emplace_back([impl = impl_.get(), i] { impl->work(i); });
  } catch (const std::system_error& error) {
    const size_t made = impl_->workers.size() + 1;
    impl_->stop_and_join();
    throw_error(Code::kResourceExhausted, "[threads] the system gave ", made, " of ", count, " threads (", error.what(),
                "); ask for fewer");
  }
}

ThreadTeam::~ThreadTeam() {
  if (impl_->foreign()) {
    // A forked child: there is nobody to join, and std::thread may not be destroyed unjoined. The memory is left.
    (void)impl_.release();
    return;
  }
  impl_->stop_and_join();
}

int ThreadTeam::spins() const { return impl_->spins; }

int ThreadTeam::size() const { return impl_->threads; }

void ThreadTeam::run(const std::function<void(int worker)>& body) {
  Impl& impl = *impl_;
  require(!impl.foreign(), Code::kFailedPrecondition, "[threads] the process was forked after its ", impl.threads,
          " threads had started, and they do not exist in the child; load the model in the child, or use spawn");
  require(!impl.running.exchange(true, std::memory_order_acquire), Code::kFailedPrecondition,
          "[threads] the team is already running; one run at a time");
  if (impl.threads == 1) {
    body(0);
  } else {
    impl.body = &body;
    impl.unfinished.store(impl.threads - 1, std::memory_order_relaxed);
    const uint32_t seen = impl.done.now();
    impl.start.advance();
    body(0);
    impl.done.wait_past(seen, impl.spins);
    impl.body = nullptr;
  }
  impl.running.store(false, std::memory_order_release);
}

bool ThreadTeam::was_parked(int worker) const noexcept {
  return worker > 0 && impl_->parked[static_cast<size_t>(worker)].value;
}

void ThreadTeam::parallel_for(int64_t units, const std::function<void(int64_t begin, int64_t end, int worker)>& fn) {
  if (units <= 0) return;
  const int64_t members = size();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(members));
  run([&](int worker) {
    // The first units % members members take one unit more.
    const int64_t share = units / members, extra = units % members;
    const int64_t begin = worker * share + std::min<int64_t>(worker, extra);
    const int64_t end = begin + share + (worker < extra ? 1 : 0);
    if (begin == end) return;
    try {
      fn(begin, end, worker);
    } catch (...) {
      errors[static_cast<size_t>(worker)] = std::current_exception();
    }
  });
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace atb
