// SPDX-License-Identifier: Apache-2.0
// The harness notices kernels that are wrong in each of the ways it is there for.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "ops/check_case.h"

namespace atb::testing {
namespace {

enum class Mistake {
  kNone,
  kLastUnitLeftOut,
  kWritesBehind,
  kDependsOnSplit,
  kDependsOnAlignment,
  kWritesInput,
  kOffByAnUlp,
  kReadsOutputFirst,
  kSetsFault
};

// relu of [4, 16], one unit a row, with one mistake.
class WrongRelu final : public Kernel {
 public:
  explicit WrongRelu(Mistake mistake) : mistake_(mistake) {}
  int64_t units(const Call& call, int) const noexcept override {
    return call.outputs[0].rows() - (mistake_ == Mistake::kLastUnitLeftOut ? 1 : 0);
  }
  double cost(const Call&, int) const noexcept override { return 1; }
  void run(const Call& call, int, int64_t begin, int64_t end, std::byte*) const noexcept override {
    const float* x = call.inputs[0].as<const float>();
    float* out = call.outputs[0].as<float>();
    const int64_t n = call.outputs[0].dim(-1);
    if (mistake_ == Mistake::kReadsOutputFirst) out[begin * n] = 0;  // wrong only in place
    for (int64_t i = begin * n; i < end * n; ++i) {
      out[i] = x[i] < 0 ? 0 : x[i];
      if (mistake_ == Mistake::kOffByAnUlp && i == 3) out[i] = std::nextafter(out[i], 2.0f);
    }
    if (mistake_ == Mistake::kDependsOnSplit) out[begin * n] += static_cast<float>(end - begin) * 1e-6f;
    if (mistake_ == Mistake::kWritesBehind && end == call.outputs[0].rows()) out[end * n] = 1.0f;
    if (mistake_ == Mistake::kWritesInput) call.inputs[0].as<float>()[begin * n] = 7.0f;
    if (mistake_ == Mistake::kSetsFault) *call.fault = true;
    const bool aligned = reinterpret_cast<uintptr_t>(out) % 64 == 0;
    if (mistake_ == Mistake::kDependsOnAlignment && !aligned) out[begin * n] += 1.0f;
  }
  std::string variant(const Call&) const override { return "wrong"; }

 private:
  Mistake mistake_;
};

Problems problems_of(Mistake mistake) {
  SweptCase swept{.name = "relu/wrong", .op = "relu", .tolerance = 1e-6, .same_as_f32 = true};
  std::vector<float> x = random_values(64, 1);
  x[0] = 0.5f;  // so that a zero in its place is seen
  const OpCase test{.op = "relu", .inputs = {activation({4, 16}, x)}};
  Graph graph;
  const Node* node = build_op_graph(graph, test);
  const Expected expected{interpret_case<float>(graph, test), interpret_case<double>(graph, test)};
  Teams teams;
  Problems problems;
  // Each size has another number of threads.
  for (int64_t n = 0; n < 3; ++n) {
    const WrongRelu kernel(mistake);
    const Problems found = check_kernel(swept, test, *node, kernel, expected, n, teams);
    problems.insert(problems.end(), found.begin(), found.end());
  }
  return problems;
}

bool mentions(const Problems& problems, const std::string& text) {
  for (const std::string& problem : problems) {
    if (problem.find(text) != std::string::npos) return true;
  }
  return false;
}

TEST(Harness, FindsNothingWrongInARightKernel) { EXPECT_TRUE(problems_of(Mistake::kNone).empty()); }

TEST(Harness, NoticesWrongKernels) {
  EXPECT_TRUE(mentions(problems_of(Mistake::kLastUnitLeftOut), "differs from f64"));
  EXPECT_TRUE(mentions(problems_of(Mistake::kOffByAnUlp), "other bits than the f32 reference"));
  EXPECT_TRUE(mentions(problems_of(Mistake::kWritesBehind), "wrote outside output 0"));
  EXPECT_TRUE(mentions(problems_of(Mistake::kDependsOnSplit), "other bits when run in halves"));
  EXPECT_TRUE(mentions(problems_of(Mistake::kDependsOnSplit), "threads"));
  EXPECT_TRUE(mentions(problems_of(Mistake::kDependsOnAlignment), "misaligned"));
  EXPECT_TRUE(mentions(problems_of(Mistake::kWritesInput), "wrote to input 0"));
  EXPECT_TRUE(mentions(problems_of(Mistake::kReadsOutputFirst), "in place"));
  EXPECT_TRUE(mentions(problems_of(Mistake::kSetsFault), "fault flag"));
}

TEST(Harness, RefusesCasesThatCheckNothing) {
  CaseRegistry registry;
  EXPECT_THROW(registry.add({.name = "x/y", .op = "no_such_operator"}), Error);
  SweptCase fine{.name = "relu/x", .op = "relu", .make = [](int64_t) { return OpCase{}; }, .sizes = {1}};
  registry.add(fine);
  EXPECT_THROW(registry.add(fine), Error);
  fine.name = "relu/y";
  fine.sizes = {};
  EXPECT_THROW(registry.add(fine), Error);
}

}  // namespace
}  // namespace atb::testing
