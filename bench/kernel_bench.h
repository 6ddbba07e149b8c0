// SPDX-License-Identifier: Apache-2.0
// One call of the table of operator cases, ready to be run again and again by the executor.
#pragma once

#include <memory>
#include <vector>

#include "core/thread_team.h"
#include "ops/case_registry.h"
#include "runtime/executor.h"

namespace atb {

// Programs of one call that differ in their constants alone. Running them in turn reads weights from memory where
// together they are larger than the caches, as a decode step does.
class KernelBench {
 public:
  KernelBench(const testing::BenchCall& call, ThreadTeam& team);
  ~KernelBench();

  void run();            // the next program, once
  double bytes() const;  // read and written by a run, by the operator's own formula
  double flops() const;  // of a run; a multiply-add counts 2
  size_t copies() const { return copies_.size(); }
  std::string variant() const;  // the code that runs

 private:
  struct Copy;
  std::vector<std::unique_ptr<Copy>> copies_;
  size_t next_ = 0;
  Executor executor_;
};

}  // namespace atb
