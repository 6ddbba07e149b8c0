// SPDX-License-Identifier: Apache-2.0
// Metadata of a GGUF file: a tree of typed values whose strings stay in the mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace atb {

// Numbers as in the file.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
constexpr uint32_t kGgufTypes = 13;

const char* gguf_type_name(GgufType type);

struct GgufArray {
  GgufType type = GgufType::kU8;  // of the elements
  uint64_t count = 0;
  std::span<const std::byte> raw;         // fixed-size elements, packed little endian, maybe unaligned; else empty
  std::vector<std::string_view> strings;  // elements of kString
  std::vector<GgufArray> arrays;          // elements of kArray

  // Element `index` of a fixed-size type. kInternal outside the array or for strings and arrays.
  double number(uint64_t index) const;
  int64_t integer(uint64_t index) const;  // floats are truncated
};

struct GgufValue {
  GgufType type = GgufType::kU8;
  // Unsigned integers, signed ones, floats (f32 is widened), bool, string, array.
  std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray> value;
};

// Key -> value. Views point into the file: keep it (Gguf::file) while they are used.
class GgufMetadata {
 public:
  // Null if absent.
  const GgufValue* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const std::map<std::string_view, GgufValue>& items() const { return items_; }
  bool add(std::string_view key, GgufValue value) { return items_.emplace(key, std::move(value)).second; }

  // Typed access; nullopt / null where the key is absent, kDataLoss "[gguf] key: holds a string, expected ..." where it
  // holds something else. Integers of any width and sign are accepted when they fit. f32 values come back as the
  // shortest decimal that gives the same f32 (1e-05, not 9.9999997e-06): what the exporter of the file meant.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> real(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  const GgufArray* array(std::string_view key) const;

 private:
  std::map<std::string_view, GgufValue> items_;
};

}  // namespace atb
