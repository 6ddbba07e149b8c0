// SPDX-License-Identifier: Apache-2.0
// One operator call in a test: run by the interpreter in f32 and f64 and by its CPU kernel, the kernel with its units
// split in several ways, whose results must be the same bits. What every operator must do is in the table of cases
// (tests/ops/cases); this is for what only one operator does.
//
//   OpRun run = run_op({.op = "rms_norm", .inputs = {activation({2, 8}, x), weight({8}, w)}, .attrs = {{"eps",
//   1e-5}}}); EXPECT_LT(max_error(run.kernel[0], run.f64[0]), 1e-6);
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/target.h"
#include "ops/kernel_run.h"

namespace atb::testing {

struct OpRun {
  std::vector<RefTensor<float>> f32;     // interpreter
  std::vector<RefTensor<double>> f64;    // interpreter
  std::vector<RefTensor<float>> kernel;  // CPU kernel; empty if the operator has none for this call
  std::string variant;
};

// Runs `call`. Fails the running test where splits differ in a bit or the kernel writes outside its outputs.
inline OpRun run_op(const OpCase& test) {
  Graph graph;
  const Node* node = build_op_graph(graph, test);
  OpRun result;
  if (test.with_reference) {
    result.f32 = interpret_case<float>(graph, test);
    result.f64 = interpret_case<double>(graph, test);
  }
  PackedStore store;
  const std::unique_ptr<Kernel> kernel = make_case_kernel(test, *node, store);
  if (kernel == nullptr) return result;
  KernelRun run(test, *node, *kernel);
  result.variant = run.variant();
  const KernelResult whole = *run.run({});
  for (const RunWay& way : {RunWay{SplitKind::kOneByOne}, RunWay{SplitKind::kHalves}, RunWay{SplitKind::kBackwards},
                            RunWay{.in_place = true}}) {
    const std::optional<KernelResult> again = run.run(way);
    if (again && !same_bits(whole, *again)) ADD_FAILURE() << test.op << ": other bits when run " << describe(way);
  }
  for (const std::string& fault : run.faults()) ADD_FAILURE() << fault;
  result.kernel = whole.outputs;
  return result;
}

// Instruction sets of this build that this CPU has and kernels are written for, best first.
inline std::vector<std::string_view> usable_targets() {
  std::vector<std::string_view> names = cpu_targets();
  std::erase(names, "SCALAR");
  std::erase(names, "EMU128");
  return names;
}

// Kernels made and run in its life use one target.
class ForcedTarget {
 public:
  explicit ForcedTarget(std::string_view name) { force_cpu_target(name); }
  ~ForcedTarget() { force_cpu_target({}); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

}  // namespace atb::testing
