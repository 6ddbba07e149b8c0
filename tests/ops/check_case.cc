// SPDX-License-Identifier: Apache-2.0
#include "ops/check_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/target.h"
#include "ops/kv_fixture.h"

namespace atb::testing {
namespace {

// Plain loops in f32 against f64: sums of up to a few hundred terms, one after the other.
constexpr double kReferenceTolerance = 2e-5;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", value);
  return text;
}

void check_references(const Expected& expected, Problems& problems) {
  for (size_t i = 0; i < expected.f32.size(); ++i) {
    const RefTensor<float>& f32 = expected.f32[i];
    const double error = max_error(f32, expected.f64[i]);
    if (f32.i != expected.f64[i].i || !(error < kReferenceTolerance)) {
      problems.push_back("the references in f32 and f64 differ by " + number(error) + " in output " +
                         std::to_string(i));
    }
  }
}

void check_values(const SweptCase& swept, const OpCase& test, const KernelResult& result, const Expected& expected,
                  Problems& problems) {
  if (result.outputs.size() != expected.f64.size()) {
    problems.push_back("the kernel has another number of outputs than the reference");
    return;
  }
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const std::string output = "output " + std::to_string(i);
    const RefTensor<double>& f64 = expected.f64[i];
    if (f64.dtype == DType::kState) {
      const double error = test.cache->error(*f64.state);
      if (!(error <= swept.tolerance)) problems.push_back("the cache differs from f64 by " + number(error));
      continue;
    }
    if (result.outputs[i].i != f64.i) problems.push_back(output + " has other integers");
    const double error = max_error(result.outputs[i], f64);
    if (!(error <= swept.tolerance)) {
      problems.push_back(output + " differs from f64 by " + number(error) + ", allowed " + number(swept.tolerance));
    }
    if (swept.same_as_f32 && !same_bits(result.outputs[i], expected.f32[i])) {
      problems.push_back(output + " has other bits than the f32 reference");
    }
  }
}

template <class Element>
std::vector<Element> row_of(const std::vector<Element>& all, int64_t rows, int64_t row) {
  const auto width = static_cast<std::ptrdiff_t>(all.size()) / rows;
  return {all.begin() + row * width, all.begin() + (row + 1) * width};
}

RefTensor<float> row_of(const RefTensor<float>& all, int64_t row) {
  const int64_t rows = all.shape[0];
  RefTensor<float> one{all.dtype, all.shape, row_of(all.f, rows, row), row_of(all.i, rows, row), nullptr};
  one.shape[0] = 1;
  return one;
}

// First, middle and last row alone against the same rows of `whole`.
void check_rows(const SweptCase& swept, const OpCase& test, const KernelResult& whole, Problems& problems) {
  if (swept.rows.empty()) return;
  const int64_t rows = test.inputs[swept.rows[0]].tensor->shape[0];
  if (rows < 2) return;
  for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
    OpCase one = test;
    for (const size_t operand : swept.rows) one.inputs[operand].tensor = row_of(*test.inputs[operand].tensor, row);
    Graph graph;
    const Node* node = build_op_graph(graph, one);
    PackedStore store;
    const std::unique_ptr<Kernel> kernel = make_case_kernel(one, *node, store);
    if (kernel == nullptr) return;
    const KernelResult alone = *KernelRun(one, *node, *kernel).run({});
    for (size_t i = 0; i < alone.outputs.size(); ++i) {
      if (!same_bits(alone.outputs[i], row_of(whole.outputs[i], row))) {
        problems.push_back("row " + std::to_string(row) + " of " + std::to_string(rows) + " has other bits alone");
        return;
      }
    }
  }
}

}  // namespace

ThreadTeam& Teams::of(int threads) {
  auto& team = teams_[threads];
  if (team == nullptr) team = std::make_unique<ThreadTeam>(threads);
  return *team;
}

Problems check_kernel(const SweptCase& swept, const OpCase& test, const Node& node, const Kernel& kernel,
                      const Expected& expected, int64_t n, Teams& teams) {
  Problems problems;
  KernelRun run(test, node, kernel);
  const KernelResult whole = *run.run({});
  check_values(swept, test, whole, expected, problems);
  const auto misalign = static_cast<size_t>(1 + n * 5 % 15);
  ThreadTeam& team = teams.of(static_cast<int>(2 + n % 3));
  for (const RunWay& way :
       {RunWay{SplitKind::kOneByOne}, RunWay{SplitKind::kHalves}, RunWay{SplitKind::kBackwards},
        RunWay{.misalign = misalign}, RunWay{.in_place = true, .misalign = misalign}, RunWay{.team = &team}}) {
    const std::optional<KernelResult> again = run.run(way);
    if (again && !same_bits(whole, *again)) problems.push_back("other bits when run " + describe(way));
  }
  problems.insert(problems.end(), run.faults().begin(), run.faults().end());
  return problems;
}

Problems check_case(const SweptCase& swept, int64_t n, std::span<const std::string_view> targets, Teams& teams) {
  const OpCase test = swept.make(n);
  const OpCase oracle = swept.oracle ? swept.oracle(test) : test;
  Graph graph, oracle_graph;
  const Node* node = build_op_graph(graph, test);
  build_op_graph(oracle_graph, oracle);
  const Expected expected{interpret_case<float>(oracle_graph, oracle), interpret_case<double>(oracle_graph, oracle)};
  Problems problems;
  check_references(expected, problems);
  for (const std::string_view target : targets) {
    force_cpu_target(target);
    PackedStore store;
    const std::unique_ptr<Kernel> kernel = make_case_kernel(test, *node, store);
    Problems found;
    if (kernel == nullptr) {
      if (swept.kernel) found.push_back("the CPU has no kernel for it");
    } else {
      found = check_kernel(swept, test, *node, *kernel, expected, n, teams);
      check_rows(swept, test, *KernelRun(test, *node, *kernel).run({}), found);
    }
    for (const std::string& problem : found) problems.push_back(std::string(target) + ": " + problem);
  }
  force_cpu_target({});
  return problems;
}

}  // namespace atb::testing
