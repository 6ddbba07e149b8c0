// SPDX-License-Identifier: Apache-2.0
// Cases of the functions of one and two operands, comparisons and connectives.
#include <cmath>

#include "ops/cases/case_util.h"

namespace atb {
namespace {

using namespace testing;

void register_unary(CaseRegistry& registry, const std::string& op, bool only_positive) {
  registry.add(
      {.name = op + "/f32",
       .op = op,
       .make =
           [op, only_positive](int64_t n) {
             return OpCase{.op = op, .inputs = {only_positive ? positive({3, n}, 1) : random_activation({3, n}, 1, 4)}};
           },
       .sizes = few_sizes(),
       .tolerance = 5e-7,
       .why = "one function of the C library, one or two more roundings",
       .same_as_f32 = true,
       .rows = {0}});
}

// Functions that kernels compute by fits in vectors: within 2 ulp, but other bits than the C library's.
void register_fitted(CaseRegistry& registry, const std::string& op) {
  registry.add({.name = op + "/f32",
                .op = op,
                .make =
                    [op](int64_t n) {
                      return OpCase{.op = op, .inputs = {random_activation({3, n}, 1, 4)}};
                    },
                .sizes = around_vectors(),
                .tolerance = 5e-7,
                .why = "a fit within 2 ulp",
                .rows = {0}});
}

void register_signs(CaseRegistry& registry, const std::string& op) {
  register_unary(registry, op, false);
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    registry.add({.name = op + "/" + std::string(dtype_name(dtype)),
                  .op = op,
                  .make =
                      [op, dtype](int64_t n) {
                        return OpCase{.op = op, .inputs = {some_integers({3, n}, 31, dtype)}};
                      },
                  .sizes = few_sizes(),
                  .why = "integers",
                  .rows = {0}});
  }
}

// Both operands of one dtype: rows against rows, a vector, and a scalar.
struct Operands {
  DType dtype;
  Operand a(std::vector<int64_t> shape) const { return make(std::move(shape), 1, 31); }
  Operand b(std::vector<int64_t> shape) const { return make(std::move(shape), 2, 17); }
  Operand make(std::vector<int64_t> shape, uint32_t seed, int64_t step) const {
    if (dtype == DType::kF32) return random_activation(std::move(shape), seed, 3);
    if (dtype == DType::kBool) return flags(std::move(shape));
    return some_integers(std::move(shape), step, dtype);
  }
};

// `fix` makes divisors and exponents of `b`.
void register_binary(CaseRegistry& registry, const std::string& op, const std::vector<DType>& dtypes,
                     const std::function<Operand(Operand)>& fix, double tolerance = 0) {
  for (const DType dtype : dtypes) {
    const auto add = [&](const std::string& form, std::vector<size_t> rows, auto shape_of_b) {
      registry.add({.name = op + "/" + std::string(dtype_name(dtype)) + "/" + form,
                    .op = op,
                    .make =
                        [=](int64_t n) {
                          const Operands operands{dtype};
                          return OpCase{.op = op, .inputs = {operands.a({4, n}), fix(operands.b(shape_of_b(n)))}};
                        },
                    .sizes = few_sizes(),
                    .tolerance = tolerance,
                    .why = tolerance > 0 ? "a few roundings" : "exact, or integers",
                    .same_as_f32 = true,
                    .rows = std::move(rows)});
    };
    add("rows", {0, 1}, [](int64_t n) { return std::vector<int64_t>{4, n}; });
    add("vector", {0}, [](int64_t n) { return std::vector<int64_t>{n}; });
    add("scalar", {0}, [](int64_t) { return std::vector<int64_t>{}; });
  }
}

Operand as_it_is(Operand operand) { return operand; }

Operand never_zero(Operand operand) {
  for (float& value : operand.tensor->f) value = std::copysign(std::abs(value) + 0.5f, value);
  for (int64_t& value : operand.tensor->i) value = value == 0 ? 3 : value;
  return operand;
}

Operand small_powers(Operand operand) {
  for (size_t i = 0; i < operand.tensor->f.size(); ++i) operand.tensor->f[i] = static_cast<float>(i % 4);
  for (int64_t& value : operand.tensor->i) value = value % 5;
  return operand;
}

}  // namespace

void register_case_math(CaseRegistry& registry) {
  register_signs(registry, "neg");
  register_signs(registry, "abs");
  for (const char* op : {"exp", "tanh", "sigmoid"}) register_fitted(registry, op);
  for (const char* op : {"sin", "cos", "erf"}) register_unary(registry, op, false);
  for (const char* op : {"log", "sqrt", "rsqrt", "reciprocal"}) register_unary(registry, op, true);
  const std::vector<DType> numbers{DType::kF32, DType::kI32, DType::kI64};
  std::vector<DType> all = numbers;
  all.push_back(DType::kBool);
  for (const char* op : {"maximum", "minimum", "less", "less_equal", "equal"}) {
    register_binary(registry, op, all, as_it_is);
  }
  register_binary(registry, "floor_divide", numbers, never_zero);
  register_binary(registry, "remainder", numbers, never_zero, 1e-6);
  register_binary(registry, "pow", numbers, small_powers, 5e-7);
  for (const char* op : {"logical_and", "logical_or"}) register_binary(registry, op, {DType::kBool}, as_it_is);
  registry.add({.name = "logical_not/bool",
                .op = "logical_not",
                .make =
                    [](int64_t n) {
                      return OpCase{.op = "logical_not", .inputs = {flags({3, n})}};
                    },
                .sizes = few_sizes(),
                .why = "bools",
                .rows = {0}});
}

}  // namespace atb
