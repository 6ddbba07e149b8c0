// SPDX-License-Identifier: Apache-2.0
// Typed access to GGUF metadata.
#include "frontends/gguf_metadata.h"

#include <charconv>
#include <cstring>
#include <type_traits>

#include "core/error.h"

namespace atb {
namespace {

template <class T>
T load(std::span<const std::byte> raw, uint64_t index) {
  T value;
  std::memcpy(&value, raw.data() + index * sizeof(T), sizeof(T));
  return value;
}

// Calls visit(element) with the element's own C++ type.
template <class Visit>
auto visit_element(const GgufArray& array, uint64_t index, Visit visit) {
  require(index < array.count, Code::kInternal, "[gguf] element ", index, " of an array of ", array.count);
  switch (array.type) {
    case GgufType::kU8:
    case GgufType::kBool:
      return visit(load<uint8_t>(array.raw, index));
    case GgufType::kI8:
      return visit(load<int8_t>(array.raw, index));
    case GgufType::kU16:
      return visit(load<uint16_t>(array.raw, index));
    case GgufType::kI16:
      return visit(load<int16_t>(array.raw, index));
    case GgufType::kU32:
      return visit(load<uint32_t>(array.raw, index));
    case GgufType::kI32:
      return visit(load<int32_t>(array.raw, index));
    case GgufType::kF32:
      return visit(load<float>(array.raw, index));
    case GgufType::kU64:
      return visit(load<uint64_t>(array.raw, index));
    case GgufType::kI64:
      return visit(load<int64_t>(array.raw, index));
    case GgufType::kF64:
      return visit(load<double>(array.raw, index));
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  throw_error(Code::kInternal, "[gguf] an array of ", gguf_type_name(array.type), " has no numbers");
}

[[noreturn]] void wrong_type(std::string_view key, const GgufValue& value, const char* expected) {
  throw_error(Code::kDataLoss, "[gguf] metadata ", key, " is of type ", gguf_type_name(value.type), ", expected ",
              expected);
}

double shortest_decimal(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double result = static_cast<double>(value);
  std::from_chars(text, end, result);
  return result;
}

}  // namespace

const char* gguf_type_name(GgufType type) {
  static constexpr const char* kNames[kGgufTypes] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                     "bool", "string", "array", "u64", "i64", "f64"};
  const auto index = static_cast<uint32_t>(type);
  return index < kGgufTypes ? kNames[index] : "unknown";
}

double GgufArray::number(uint64_t index) const {
  return visit_element(*this, index, [](auto value) { return static_cast<double>(value); });
}

int64_t GgufArray::integer(uint64_t index) const {
  return visit_element(*this, index, [](auto value) {
    if constexpr (std::is_floating_point_v<decltype(value)>) {
      // Outside this range (or NaN) the conversion would be undefined.
      return std::abs(value) < 9e18 ? static_cast<int64_t>(value) : int64_t{0};
    } else {
      return static_cast<int64_t>(value);
    }
  });
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto it = items_.find(key);
  return it == items_.end() ? nullptr : &it->second;
}

std::optional<int64_t> GgufMetadata::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<int64_t>(&value->value)) return *number;
  const auto* number = std::get_if<uint64_t>(&value->value);
  if (number == nullptr) wrong_type(key, *value, "an integer");
  require(*number <= INT64_MAX, Code::kDataLoss, "[gguf] metadata ", key, " = ", *number, " exceeds 2^63 - 1");
  return static_cast<int64_t>(*number);
}

std::optional<double> GgufMetadata::real(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(&value->value)) {
    return value->type == GgufType::kF32 ? shortest_decimal(static_cast<float>(*number)) : *number;
  }
  if (std::holds_alternative<int64_t>(value->value) || std::holds_alternative<uint64_t>(value->value)) {
    return static_cast<double>(*integer(key));
  }
  wrong_type(key, *value, "a number");
}

std::optional<bool> GgufMetadata::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* flag = std::get_if<bool>(&value->value);
  if (flag == nullptr) wrong_type(key, *value, "bool");
  return *flag;
}

std::optional<std::string_view> GgufMetadata::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* text = std::get_if<std::string_view>(&value->value);
  if (text == nullptr) wrong_type(key, *value, "string");
  return *text;
}

const GgufArray* GgufMetadata::array(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* array = std::get_if<GgufArray>(&value->value);
  if (array == nullptr) wrong_type(key, *value, "array");
  return array;
}

}  // namespace atb
