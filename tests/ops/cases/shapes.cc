// SPDX-License-Identifier: Apache-2.0
// Cases of concat, slice, broadcast and take: copies of any dtype.
#include "ops/cases/case_util.h"

namespace atb {
namespace {

using namespace testing;

void add(CaseRegistry& registry, const std::string& name, std::function<OpCase(int64_t)> make,
         std::vector<size_t> rows = {}) {
  registry.add({.name = name,
                .op = name.substr(0, name.find('/')),
                .make = std::move(make),
                .sizes = few_sizes(),
                .why = "copies",
                .same_as_f32 = true,
                .rows = std::move(rows)});
}

Operand some(DType dtype, std::vector<int64_t> shape, uint32_t seed) {
  if (dtype == DType::kF32) return random_activation(std::move(shape), seed);
  return dtype == DType::kBool ? flags(std::move(shape)) : some_integers(std::move(shape), 7 + seed, dtype);
}

void register_concat(CaseRegistry& registry, DType dtype) {
  const std::string name = "concat/" + std::string(dtype_name(dtype));
  add(registry, name + "/last",
      [dtype](int64_t n) {
        return OpCase{.op = "concat",
                      .inputs = {some(dtype, {3, n}, 1), some(dtype, {3, 2}, 2), some(dtype, {3, n + 1}, 3)},
                      .attrs = {{"axis", int64_t{-1}}}};
      },
      {0, 1, 2});
  add(registry, name + "/first", [dtype](int64_t n) {
    return OpCase{
        .op = "concat", .inputs = {some(dtype, {n, 5}, 1), some(dtype, {2, 5}, 2)}, .attrs = {{"axis", int64_t{0}}}};
  });
  add(registry, name + "/middle",
      [dtype](int64_t n) {
        return OpCase{.op = "concat",
                      .inputs = {some(dtype, {2, n, 3}, 1), some(dtype, {2, 4, 3}, 2)},
                      .attrs = {{"axis", int64_t{1}}}};
      },
      {0, 1});
}

void register_slice(CaseRegistry& registry, DType dtype) {
  const auto add_form = [&](const char* form, int64_t axis, int64_t step, std::vector<size_t> rows) {
    add(
        registry, "slice/" + std::string(dtype_name(dtype)) + "/" + form,
        [=](int64_t n) {
          const std::vector<int64_t> shape =
              axis == -1 ? std::vector<int64_t>{3, 2, n + 5} : std::vector<int64_t>{3, n + 5, 2};
          return OpCase{.op = "slice",
                        .inputs = {some(dtype, shape, 1)},
                        .attrs = {{"axis", axis}, {"bounds", Shape{Dim(2), Dim(n + 4)}}, {"step", step}}};
        },
        std::move(rows));
  };
  add_form("last", -1, 1, {0});
  add_form("every_third_of_last", -1, 3, {0});
  add_form("middle", 1, 1, {0});
  add_form("every_second_of_middle", 1, 2, {0});
}

void register_broadcast(CaseRegistry& registry, DType dtype) {
  const std::string name = "broadcast/" + std::string(dtype_name(dtype));
  const auto to = [](Operand x, Shape shape) {
    return OpCase{.op = "broadcast", .inputs = {std::move(x)}, .attrs = {{"shape", std::move(shape)}}};
  };
  add(registry, name + "/scalar", [=](int64_t n) { return to(some(dtype, {}, 1), {Dim(2), Dim(n)}); });
  add(registry, name + "/last", [=](int64_t n) { return to(some(dtype, {3, 1}, 1), {Dim(3), Dim(n)}); });
  add(registry, name + "/middle", [=](int64_t n) { return to(some(dtype, {2, 1, 5}, 1), {Dim(2), Dim(n), Dim(5)}); });
  add(registry, name + "/leading", [=](int64_t n) { return to(some(dtype, {n}, 1), {Dim(2), Dim(3), Dim(n)}); });
}

Operand indices(std::vector<int64_t> shape, int64_t extent, DType dtype, int64_t step) {
  std::vector<int64_t> values = counting(count_of(shape));
  for (int64_t& value : values) value = value * step % (2 * extent) - extent;
  return integers(std::move(shape), std::move(values), dtype);
}

void register_take(CaseRegistry& registry, DType dtype) {
  const std::string name = "take/" + std::string(dtype_name(dtype));
  add(registry, name + "/rows",
      [=](int64_t n) {
        return OpCase{.op = "take", .inputs = {some(dtype, {7, n}, 1), indices({5}, 7, DType::kI64, 5)}};
      },
      {1});
  add(registry, name + "/elements",
      [=](int64_t n) {
        return OpCase{
            .op = "take",
            .inputs = {some(dtype, {3, 7}, 1), indices({n, 1}, 3, DType::kI32, 2), indices({n, 4}, 7, DType::kI64, 3)}};
      },
      {1, 2});
  add(registry, name + "/slices", [=](int64_t n) {
    return OpCase{
        .op = "take",
        .inputs = {some(dtype, {3, 4, 2, n}, 1), indices({2, 1}, 3, DType::kI64, 1), indices({3}, 4, DType::kI64, 3)}};
  });
}

}  // namespace

void register_case_shapes(CaseRegistry& registry) {
  for (const DType dtype : {DType::kF32, DType::kI64, DType::kBool}) {
    register_concat(registry, dtype);
    register_slice(registry, dtype);
    register_broadcast(registry, dtype);
    register_take(registry, dtype);
  }
}

}  // namespace atb
