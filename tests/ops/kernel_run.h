// SPDX-License-Identifier: Apache-2.0
// Runs the kernel of an operator call in memory that notices writes outside, its units split and ordered in many ways.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/thread_team.h"
#include "ops/guarded_buffer.h"
#include "ops/op_case.h"

namespace atb::testing {

enum class SplitKind { kWhole, kOneByOne, kHalves, kBackwards };

// One way to run a kernel.
struct RunWay {
  SplitKind split = SplitKind::kWhole;
  ThreadTeam* team = nullptr;  // runs small parts on all members as they come; `split` is not used then
  bool in_place = false;       // outputs that may be written over an input are
  size_t misalign = 0;         // elements by which activations and outputs miss 64-byte alignment
};
std::string describe(const RunWay& way);

struct KernelResult {
  std::vector<RefTensor<float>> outputs;  // states have no elements
  std::vector<std::byte> cache;           // contents of the case's cache afterwards
};
bool same_bits(const KernelResult& a, const KernelResult& b);

class KernelRun {
 public:
  KernelRun(const OpCase& test, const Node& node, const Kernel& kernel) : test_(test), node_(node), kernel_(kernel) {}

  // Nothing where no output could be put over an input.
  std::optional<KernelResult> run(const RunWay& way);
  std::string variant();
  // What a kernel must never do, each said once: writing outside its outputs, scratch or blocks, changing an input,
  // setting the fault flag.
  const std::vector<std::string>& faults() const { return faults_; }

 private:
  struct Memory;
  void bind_inputs(const RunWay& way, Memory& memory) const;
  bool bind_outputs(const RunWay& way, Memory& memory) const;
  void run_phases(const RunWay& way, Memory& memory);
  void check(const RunWay& way, const Memory& memory);
  void fault(const std::string& what);

  const OpCase& test_;
  const Node& node_;
  const Kernel& kernel_;
  std::vector<std::string> faults_;
};

}  // namespace atb::testing
