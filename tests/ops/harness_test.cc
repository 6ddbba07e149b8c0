// SPDX-License-Identifier: Apache-2.0
// Every case of the table at every size on every SIMD target of this CPU; and every operator has a case.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ops/check_case.h"
#include "ops/kernel_harness.h"

namespace atb::testing {
namespace {

Teams& teams() {
  static Teams shared;
  return shared;
}

std::string test_name(const ::testing::TestParamInfo<size_t>& info) {
  std::string name = CaseRegistry::instance().all()[info.param].name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

std::vector<size_t> all_cases() {
  std::vector<size_t> indices(CaseRegistry::instance().all().size());
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  return indices;
}

class OpCases : public ::testing::TestWithParam<size_t> {};

TEST_P(OpCases, HoldAtEverySizeOnEveryTarget) {
  const SweptCase& swept = CaseRegistry::instance().all()[GetParam()];
  const std::vector<std::string_view> targets = usable_targets();
  ASSERT_FALSE(targets.empty());
  for (const int64_t n : swept.sizes) {
    for (const std::string& problem : check_case(swept, n, targets, teams())) {
      ADD_FAILURE() << swept.name << " at size " << n << ": " << problem;
    }
    if (HasFailure()) return;  // further sizes would say the same
  }
}

INSTANTIATE_TEST_SUITE_P(Table, OpCases, ::testing::ValuesIn(all_cases()), test_name);

TEST(OpTable, HasACaseForEveryOperator) {
  std::set<std::string> named, with_kernel;
  for (const SweptCase& swept : CaseRegistry::instance().all()) {
    named.insert(swept.op);
    if (swept.kernel) with_kernel.insert(swept.op);
    EXPECT_EQ(swept.name.rfind(swept.op + "/", 0), 0u) << swept.name << " does not begin with " << swept.op << "/";
    EXPECT_FALSE(swept.why.empty()) << swept.name << " does not say where its tolerance comes from";
  }
  for (const OpDef* op : OpRegistry::instance().all()) {
    EXPECT_TRUE(named.count(op->name)) << op->name << " has no case: add it to tests/ops/cases";
    if (op->make_cpu_kernel) {
      EXPECT_TRUE(with_kernel.count(op->name)) << "the kernel of " << op->name << " has no case in tests/ops/cases";
    }
  }
}

}  // namespace
}  // namespace atb::testing
