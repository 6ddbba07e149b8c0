// SPDX-License-Identifier: Apache-2.0
// Reading and making one-element constants.
#include "passes/analysis/scalar.h"

#include <cstring>

namespace atb {
namespace {

template <class T>
StorageRef bytes_of(T value) {
  std::vector<std::byte> bytes(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
  return storage_from_bytes(std::move(bytes));
}

template <class T>
T first_element(const Constant& constant) {
  T value;
  std::memcpy(&value, constant.row(0), sizeof value);
  return value;
}

StorageRef encode(DType dtype, double number) {
  switch (dtype) {
    case DType::kF32:
      return bytes_of(static_cast<float>(number));
    case DType::kF64:
      return bytes_of(number);
    case DType::kF16:
      return bytes_of(f32_to_f16(static_cast<float>(number)));
    case DType::kBF16:
      return bytes_of(f32_to_bf16(static_cast<float>(number)));
    case DType::kI32:
      return bytes_of(static_cast<int32_t>(number));
    case DType::kI64:
      return bytes_of(static_cast<int64_t>(number));
    case DType::kBool:
      return bytes_of(static_cast<uint8_t>(number != 0 ? 1 : 0));
    default:
      throw_error(Code::kInternal, "[scalar] no constant of type ", dtype_name(dtype));
  }
}

}  // namespace

std::optional<double> scalar_value(const Value* value) {
  if (value == nullptr || !value->is_constant() || value->constant()->absent()) return std::nullopt;
  if (!(num_elements(value->shape()) == Dim(1))) return std::nullopt;
  const Constant& constant = *value->constant();
  // f32 would round these.
  if (constant.encoding() == nullptr && constant.dtype() == DType::kF64) return first_element<double>(constant);
  if (constant.dtype() == DType::kI32) return first_element<int32_t>(constant);
  if (constant.dtype() == DType::kI64) return static_cast<double>(first_element<int64_t>(constant));
  return constant.to_f32()[0];
}

ConstantRef scalar_constant(DType dtype, double number, std::string name) {
  return Constant::from_storage(std::move(name), dtype, nullptr, {}, encode(dtype, number), 0);
}

}  // namespace atb
