// SPDX-License-Identifier: Apache-2.0
// Cases of cast: each dtype to each other.
#include "ops/cases/case_util.h"

namespace atb {
namespace {

using namespace testing;

constexpr std::array<DType, 9> kDTypes = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                                          DType::kU8,  DType::kI32, DType::kI64, DType::kBool};

// Values that `dtype` can hold, with fractions where it has some; none is negative where the target may be unsigned.
Operand operand_of(DType dtype, int64_t n) {
  if (dtype == DType::kBool) return flags({3, n});
  Operand operand = integers({3, n}, some_integers({3, n}, 31).tensor->i, dtype);
  RefTensor<float>& tensor = *operand.tensor;
  if (dtype == DType::kU8) {
    for (int64_t& value : tensor.i) value += 40;
  }
  if (!is_float(dtype)) return operand;
  // Eighths below 64 take 9 bits: all but bf16 hold them.
  const float step = dtype == DType::kBF16 ? 0.5f : 0.125f;
  for (const int64_t value : tensor.i) tensor.f.push_back(static_cast<float>(value) * step);
  tensor.i.clear();
  return operand;
}

}  // namespace

void register_case_cast(CaseRegistry& registry) {
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      registry.add({.name = "cast/" + std::string(dtype_name(from)) + "_to_" + std::string(dtype_name(to)),
                    .op = "cast",
                    .make =
                        [from, to](int64_t n) {
                          return OpCase{.op = "cast",
                                        .inputs = {operand_of(from, n)},
                                        .attrs = {{"dtype", std::string(dtype_name(to))}}};
                        },
                    .sizes = few_sizes(),
                    .why = "the rounding is the definition",
                    .same_as_f32 = true,
                    .rows = {0}});
    }
  }
}

}  // namespace atb
