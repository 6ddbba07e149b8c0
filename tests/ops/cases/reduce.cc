// SPDX-License-Identifier: Apache-2.0
// Cases of sum, mean, max and cumsum.
#include "ops/cases/case_util.h"

namespace atb {
namespace {

using namespace testing;

using Ints = std::vector<int64_t>;

Operand some(DType dtype, std::vector<int64_t> shape) {
  if (dtype == DType::kF32) return positive(std::move(shape), 1);  // nothing cancels
  return dtype == DType::kBool ? flags(std::move(shape)) : some_integers(std::move(shape), 31, dtype);
}

void add(CaseRegistry& registry, const std::string& op, DType dtype, const std::string& form, bool rows,
         std::function<Ints(int64_t)> shape, const Attrs& attrs) {
  registry.add({.name = op + "/" + std::string(dtype_name(dtype)) + "/" + form,
                .op = op,
                .make = [=](int64_t n) { return OpCase{.op = op, .inputs = {some(dtype, shape(n))}, .attrs = attrs}; },
                .sizes = few_sizes(op == "sum" || op == "cumsum" ? 0 : 1),
                .tolerance = 1e-5,
                .why = "sums of up to a few hundred terms",
                .rows = rows ? std::vector<size_t>{0} : std::vector<size_t>{}});
}

void register_reduction(CaseRegistry& registry, const std::string& op, DType dtype) {
  add(registry, op, dtype, "last", true, [](int64_t n) { return Ints{3, n}; }, {{"axes", Ints{-1}}, {"keep", true}});
  add(registry, op, dtype, "middle", true, [](int64_t n) { return Ints{2, n, 5}; }, {{"axes", Ints{1}}});
  add(registry, op, dtype, "first", false, [](int64_t n) { return Ints{4, n}; }, {{"axes", Ints{0}}});
  add(registry, op, dtype, "two_axes", false, [](int64_t n) { return Ints{3, 2, n}; }, {{"axes", Ints{2, 0}}});
  add(registry, op, dtype, "all", false, [](int64_t n) { return Ints{3, n}; }, {});
}

}  // namespace

void register_case_reduce(CaseRegistry& registry) {
  register_reduction(registry, "mean", DType::kF32);
  for (const DType dtype : {DType::kF32, DType::kI32, DType::kI64, DType::kBool}) {
    register_reduction(registry, "sum", dtype);
    register_reduction(registry, "max", dtype);
    add(registry, "cumsum", dtype, "last", true, [](int64_t n) { return Ints{3, n}; }, {{"axis", int64_t{-1}}});
    add(registry, "cumsum", dtype, "middle", true, [](int64_t n) { return Ints{2, n, 3}; }, {{"axis", int64_t{1}}});
  }
}

}  // namespace atb
