// SPDX-License-Identifier: Apache-2.0
// Cases of add, sub, mul, div, where, iota and the activations.
#include <cmath>

#include "ops/cases/case_util.h"

namespace atb {
namespace {

using namespace testing;

constexpr const char* kRounding = "one rounding to f32";

std::vector<BenchCall> residual_calls(const std::string& op) {
  return bench_calls("", false, [op](const BenchModel& model, int64_t tokens) {
    const std::vector<int64_t> shape{tokens, model.hidden};
    return OpCase{.op = op, .inputs = {random_activation(shape, 1), random_activation(shape, 2)}};
  });
}

void register_binary(CaseRegistry& registry, const std::string& op, bool with_integers) {
  const auto add = [&](const char* form, std::vector<size_t> rows, auto make) {
    registry.add({.name = op + "/" + form,
                  .op = op,
                  .make = make,
                  .sizes = around_vectors(),
                  .tolerance = 6e-8,
                  .why = kRounding,
                  .same_as_f32 = true,
                  .rows = std::move(rows),
                  .bench = std::string(form) == "rows" && op == "add" ? residual_calls(op) : std::vector<BenchCall>{}});
  };
  add("rows", {0, 1}, [op](int64_t n) {
    return OpCase{.op = op, .inputs = {random_activation({5, n}, 1), positive({5, n}, 2)}};
  });
  add("vector", {0}, [op](int64_t n) {
    return OpCase{.op = op, .inputs = {random_activation({2, 3, n}, 1), positive({n}, 2)}};
  });
  add("columns", {}, [op](int64_t n) {
    return OpCase{.op = op, .inputs = {random_activation({3, 1}, 1), positive({n, 1, 4}, 2)}};
  });
  add("scalar", {0}, [op](int64_t n) {
    return OpCase{.op = op, .inputs = {random_activation({4, n}, 1), positive({}, 2)}};
  });
  if (!with_integers) return;
  add("integers", {0}, [op](int64_t n) {
    return OpCase{.op = op, .inputs = {some_integers({3, n}, 31), some_integers({n}, 17)}};
  });
  add("i64", {0}, [op](int64_t n) {
    return OpCase{.op = op, .inputs = {some_integers({3, n}, 31, DType::kI64), some_integers({n}, 17, DType::kI64)}};
  });
  if (op == "sub") return;
  add("bool", {0}, [op](int64_t n) { return OpCase{.op = op, .inputs = {flags({3, n}), flags({n})}}; });
}

void register_where(CaseRegistry& registry) {
  const auto add = [&](std::string_view form, std::vector<size_t> rows, auto make) {
    registry.add({.name = "where/" + std::string(form),
                  .op = "where",
                  .make = make,
                  .sizes = around_vectors(),
                  .why = "no arithmetic",
                  .same_as_f32 = true,
                  .rows = std::move(rows)});
  };
  add("rows", {0, 1, 2}, [](int64_t n) {
    return OpCase{.op = "where", .inputs = {flags({4, n}), random_activation({4, n}, 1), random_activation({4, n}, 2)}};
  });
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kBool}) {
    add(dtype_name(dtype), {0, 1}, [dtype](int64_t n) {
      const Operand ones = dtype == DType::kBool ? flags({4, 1}) : some_integers({4, 1}, 5, dtype);
      return OpCase{.op = "where",
                    .inputs = {flags({4, n}), ones, dtype == DType::kBool ? flags({n}) : some_integers({n}, 7, dtype)}};
    });
  }
  add("scalars", {0}, [](int64_t n) {
    return OpCase{.op = "where", .inputs = {flags({3, n}), random_activation({}, 1), weight({}, {-INFINITY})}};
  });
}

void register_activation(CaseRegistry& registry, const std::string& form, const std::string& op, const Attrs& attrs) {
  registry.add({.name = op + "/" + form,
                .op = op,
                .make =
                    [op, attrs](int64_t n) {
                      return OpCase{.op = op, .inputs = {random_activation({3, n}, 1, 10.0f)}, .attrs = attrs};
                    },
                .sizes = around_vectors(),
                .tolerance = 1e-6,
                .why = "a few roundings and a fitted exponential",
                .rows = {0}});
}

}  // namespace

void register_case_elementwise(CaseRegistry& registry) {
  register_binary(registry, "add", true);
  register_binary(registry, "sub", true);
  register_binary(registry, "mul", true);
  register_binary(registry, "div", false);
  register_where(registry);
  registry.add({.name = "iota/i32",
                .op = "iota",
                .make =
                    [](int64_t n) {
                      return OpCase{.op = "iota", .inputs = {}, .attrs = {{"shape", Shape{Dim(n)}}}};
                    },
                .sizes = around_vectors(),
                .why = "integers"});
  register_activation(registry, "f32", "silu", {});
  register_activation(registry, "f32", "relu", {});
  register_activation(registry, "erf", "gelu", {{"approximate", std::string("none")}});
  register_activation(registry, "tanh", "gelu", {{"approximate", std::string("tanh")}});
}

}  // namespace atb
