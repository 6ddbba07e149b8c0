// SPDX-License-Identifier: Apache-2.0
#include "ops/case_registry.h"

#include <algorithm>

namespace atb {

void register_all_cases(CaseRegistry& registry);  // generated

void CaseRegistry::add(testing::SweptCase test) {
  const auto same = [&](const testing::SweptCase& other) { return other.name == test.name; };
  require(std::none_of(cases_.begin(), cases_.end(), same), Code::kInternal, "[cases] ", test.name, " is there twice");
  require(OpRegistry::instance().find(test.op) != nullptr, Code::kInternal, "[cases] ", test.name, ": no operator ",
          test.op);
  require(!test.sizes.empty() && test.make != nullptr, Code::kInternal, "[cases] ", test.name, ": has no sizes");
  cases_.push_back(std::move(test));
}

const CaseRegistry& CaseRegistry::instance() {
  static const CaseRegistry& registry = *[] {
    auto* filled = new CaseRegistry;
    register_all_cases(*filled);
    return filled;
  }();
  return registry;
}

namespace testing {

std::vector<int64_t> around_vectors(int64_t first) {
  std::vector<int64_t> sizes;
  for (int64_t n = first; n <= 34; ++n) sizes.push_back(n);
  for (const int64_t n : {63, 64, 65, 70}) sizes.push_back(n);
  return sizes;
}

}  // namespace testing
}  // namespace atb
