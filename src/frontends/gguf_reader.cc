// SPDX-License-Identifier: Apache-2.0
// Checked reading of GGUF numbers, strings and arrays.
#include "frontends/gguf_reader.h"

namespace atb {
namespace {

constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kStringBytes = 8;     // length of an empty string
constexpr uint64_t kArrayBytes = 4 + 8;  // type and count of an empty array

// Bytes of one value; 0 for strings and arrays.
uint64_t fixed_size(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

}  // namespace

std::span<const std::byte> GgufReader::take(uint64_t size, std::string_view what) {
  if (size > left()) {
    fail("the file is cut: ", what, " at byte ", position_, " needs ", size, " bytes, ", left(), " are left");
  }
  const auto result = bytes_.subspan(position_, size);
  position_ += size;
  return result;
}

void GgufReader::check_count(uint64_t count, uint64_t min_bytes, std::string_view what) const {
  if (count > left() / min_bytes) {
    fail(what, " at byte ", position_, ": a count of ", count, ", but only ", left(), " bytes are left (at least ",
         min_bytes, " each)");
  }
}

std::string_view GgufReader::string(std::string_view what) {
  const auto length = number<uint64_t>(what);
  const auto bytes = take(length, what);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

GgufType GgufReader::type(std::string_view what) {
  const auto type = number<uint32_t>(what);
  if (type >= kGgufTypes) fail(what, ": value type ", type, " is unknown; known: 0 to ", kGgufTypes - 1);
  return static_cast<GgufType>(type);
}

GgufArray GgufReader::array(std::string_view key, int depth) {
  if (depth > kMaxArrayDepth) fail("metadata ", key, ": arrays nested deeper than ", kMaxArrayDepth);
  GgufArray result;
  result.type = type(key);
  result.count = number<uint64_t>(key);
  if (result.type == GgufType::kString) {
    check_count(result.count, kStringBytes, key);
    result.strings.reserve(result.count);
    for (uint64_t i = 0; i < result.count; ++i) result.strings.push_back(string(key));
  } else if (result.type == GgufType::kArray) {
    check_count(result.count, kArrayBytes, key);
    for (uint64_t i = 0; i < result.count; ++i) result.arrays.push_back(array(key, depth + 1));
  } else {
    const uint64_t size = fixed_size(result.type);
    check_count(result.count, size, key);
    result.raw = take(result.count * size, key);
  }
  return result;
}

GgufValue GgufReader::value(GgufType type, std::string_view key) {
  switch (type) {
    case GgufType::kU8:
      return {type, uint64_t{number<uint8_t>(key)}};
    case GgufType::kU16:
      return {type, uint64_t{number<uint16_t>(key)}};
    case GgufType::kU32:
      return {type, uint64_t{number<uint32_t>(key)}};
    case GgufType::kU64:
      return {type, number<uint64_t>(key)};
    case GgufType::kI8:
      return {type, int64_t{number<int8_t>(key)}};
    case GgufType::kI16:
      return {type, int64_t{number<int16_t>(key)}};
    case GgufType::kI32:
      return {type, int64_t{number<int32_t>(key)}};
    case GgufType::kI64:
      return {type, number<int64_t>(key)};
    case GgufType::kF32:
      return {type, double{number<float>(key)}};
    case GgufType::kF64:
      return {type, number<double>(key)};
    case GgufType::kBool:
      return {type, number<uint8_t>(key) != 0};
    case GgufType::kString:
      return {type, string(key)};
    case GgufType::kArray:
      return {type, array(key, 1)};
  }
  fail("metadata ", key, ": unknown type");
}

}  // namespace atb
