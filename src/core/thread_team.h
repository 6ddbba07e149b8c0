// SPDX-License-Identifier: Apache-2.0
// A team of threads that runs one function on every member.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace atb {

struct CgroupPaths;

// CPUs that the affinity mask leaves this process; at least 1.
int affinity_cpus();
// CPUs this process may use: affinity mask, capped by the cgroup (v1 or v2) CPU quota rounded up; at least 1.
int available_cpus();
// The same under control groups found elsewhere, for tests.
int available_cpus_under(const CgroupPaths& paths);
// Members of a team that is asked for 0: available_cpus(), at most 1024.
int default_threads();

// The calling thread is member 0. Waiting spins briefly (200-500 pauses), then yields, then (idle team) parks.
// After fork the child's copy has no workers: run() there throws kFailedPrecondition at once.
class ThreadTeam {
 public:
  // 0: default_threads(); 1 makes no threads. kInvalidArgument beyond 1024 or < 0.
  explicit ThreadTeam(int threads = 0);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const;
  // Pauses that are worth spinning before the core is given away; few where there are more members than CPUs.
  int spins() const;
  // Runs body(worker) on every member, the caller as worker 0; returns when all have finished. body must not throw.
  // One run at a time: callers serialize (kFailedPrecondition on re-entry).
  void run(const std::function<void(int worker)>& body);
  // Inside run(), by that worker: whether it slept before this run and had to be woken by the system.
  bool was_parked(int worker) const noexcept;
  // Splits [0, units) over the members; fn(begin, end, worker). For load-time work. fn may throw: first error rethrown.
  void parallel_for(int64_t units, const std::function<void(int64_t begin, int64_t end, int worker)>& fn);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace atb
