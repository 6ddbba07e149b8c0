// SPDX-License-Identifier: Apache-2.0
// The table of operator cases: one file of tests/ops/cases an operator or family, `void register_case_x(CaseRegistry&)`
// in it. Correctness tests, micro benchmark and support matrix are all made of this table.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ops/op_case.h"

namespace atb {

class CaseRegistry;

namespace testing {

// A call as large as a model makes it.
struct BenchCall {
  std::string name;              // "smollm2_135m/decode/q4_1"
  std::function<OpCase()> make;  // constants anew each time, so that copies beyond the caches can be read in turn
  bool reads_weights = false;    // bound by reading memory: weights must come from memory, not from a cache
};

// One form of an operator's calls at any size.
struct SweptCase {
  std::string name = {};  // "linear/q4_1/fast/features"; begins with the operator's name
  std::string op = {};    // "linear"
  std::function<OpCase(int64_t n)> make = nullptr;
  std::vector<int64_t> sizes = {};  // around the vector length: see around_vectors()
  double tolerance = 0;             // largest error against f64, relative to the largest value of an output
  std::string why = {};             // where the tolerance comes from
  bool same_as_f32 = false;         // the f32 reference has the kernel's bits
  bool kernel = true;               // false: the CPU has no kernel for this, only the reference is checked
  // Operands whose first axis counts rows, as that of every output does: a row alone must have the bits it has among
  // the others. Empty: not checked here.
  std::vector<size_t> rows = {};
  // The call whose exact result is expected, where it differs: quantized activations in precision fast.
  std::function<OpCase(OpCase)> oracle = nullptr;
  std::vector<BenchCall> bench = {};
};

// first, first + 1, ..., 2 * 16 + 2 (vectors have 4 to 16 lanes), and a few beyond four vectors.
std::vector<int64_t> around_vectors(int64_t first = 0);

}  // namespace testing

class CaseRegistry {
 public:
  void add(testing::SweptCase test);  // kInternal on a duplicate name, an unknown operator or a case without sizes
  const std::vector<testing::SweptCase>& all() const { return cases_; }
  // Cases of this build, filled once by generated code.
  static const CaseRegistry& instance();

 private:
  std::vector<testing::SweptCase> cases_;
};

}  // namespace atb
