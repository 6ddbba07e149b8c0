// SPDX-License-Identifier: Apache-2.0
// Writers of tiny safetensors and GGUF files, right or deliberately wrong, for tests.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/constant.h"
#include "core/encoding.h"
#include "core/error.h"

namespace atb::testing {

// A fresh directory, removed at the end.
class TempDir {
 public:
  TempDir() {
    static std::atomic<int> next{0};
    path_ = std::filesystem::temp_directory_path() /
            ("atb_test_" + std::to_string(::getpid()) + "_" + std::to_string(next++));
    std::filesystem::create_directories(path_);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  std::filesystem::path write(std::string_view name, std::string_view bytes) const {
    const auto file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file;
  }

 private:
  std::filesystem::path path_;
};

template <class T>
std::string as_bytes(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

inline std::string f32_bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// --- safetensors

// A file of this header text and this data; the stored header length can be overridden.
inline std::string safetensors_file(std::string_view header, std::string_view data) {
  return as_bytes(uint64_t{header.size()}).append(header).append(data);
}

class SafetensorsWriter {
 public:
  SafetensorsWriter& add(const std::string& name, const std::vector<int64_t>& shape, const std::vector<float>& values) {
    const std::string bytes = f32_bytes(values);
    std::string dims;
    for (const int64_t extent : shape) dims += (dims.empty() ? "" : ",") + std::to_string(extent);
    header_ += (header_.empty() ? "{\"" : ",\"") + name + "\":{\"dtype\":\"F32\",\"shape\":[" + dims +
               "],\"data_offsets\":[" + std::to_string(data_.size()) + "," +
               std::to_string(data_.size() + bytes.size()) + "]}";
    data_ += bytes;
    return *this;
  }
  std::string bytes() const { return safetensors_file(header_.empty() ? "{}" : header_ + "}", data_); }

 private:
  std::string header_, data_;
};

// --- GGUF

enum class GgufId : uint32_t { kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8, kQ6_K = 14, kBF16 = 30 };

class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3) : version_(version) {}

  // `value` is what follows the type word.
  GgufWriter& raw(std::string_view key, uint32_t type, std::string_view value) {
    pairs_ += string(key) + as_bytes(type) + std::string(value);
    ++pair_count_;
    return *this;
  }
  GgufWriter& u32(std::string_view key, uint32_t value) { return raw(key, 4, as_bytes(value)); }
  GgufWriter& f32(std::string_view key, float value) { return raw(key, 6, as_bytes(value)); }
  GgufWriter& boolean(std::string_view key, bool value) { return raw(key, 7, as_bytes(static_cast<uint8_t>(value))); }
  GgufWriter& text(std::string_view key, std::string_view value) { return raw(key, 8, string(value)); }
  GgufWriter& strings(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = as_bytes(uint32_t{8}) + as_bytes(uint64_t{values.size()});
    for (const auto& value : values) bytes += string(value);
    return raw(key, 9, bytes);
  }

  // Row-major shape, written reversed; data placed at the next multiple of 32.
  GgufWriter& tensor(std::string_view name, const std::vector<int64_t>& shape, GgufId type, std::string_view data) {
    data_.resize((data_.size() + 31) / 32 * 32);
    tensor_at(name, shape, static_cast<uint32_t>(type), data_.size());
    data_ += data;
    return *this;
  }
  GgufWriter& tensor_at(std::string_view name, const std::vector<int64_t>& shape, uint32_t type, uint64_t offset) {
    infos_ += string(name) + as_bytes(static_cast<uint32_t>(shape.size()));
    for (auto it = shape.rbegin(); it != shape.rend(); ++it) infos_ += as_bytes(*it);
    infos_ += as_bytes(type) + as_bytes(offset);
    ++tensor_count_;
    return *this;
  }
  GgufWriter& f32_tensor(std::string_view name, const std::vector<int64_t>& shape, const std::vector<float>& values) {
    return tensor(name, shape, GgufId::kF32, f32_bytes(values));
  }
  // Values encoded as "q8_0", "q4_0" or "q4_1".
  GgufWriter& encoded_tensor(std::string_view name, const std::vector<int64_t>& shape, GgufId type,
                             std::string_view encoding_name, const std::vector<float>& values) {
    const Encoding& encoding = *find_encoding(encoding_name);
    const auto blocks = static_cast<int64_t>(values.size()) / encoding.block_elems;
    std::string data(static_cast<size_t>(blocks * encoding.block_bytes), '\0');
    encoding.encode(values.data(), blocks, reinterpret_cast<std::byte*>(data.data()));
    return tensor(name, shape, type, data);
  }

  std::string bytes() const {
    std::string out = "GGUF" + as_bytes(version_) + as_bytes(tensor_count_) + as_bytes(pair_count_) + pairs_ + infos_;
    out.resize((out.size() + 31) / 32 * 32);
    return out + data_;
  }

  static std::string string(std::string_view text) { return as_bytes(uint64_t{text.size()}).append(text); }

 private:
  uint32_t version_;
  uint64_t tensor_count_ = 0, pair_count_ = 0;
  std::string pairs_, infos_, data_;
};

// --- checks

// The code and text of the Error that `body` throws; fails the match if it throws none.
template <class Body>
std::pair<Code, std::string> error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {Code::kInternal, "no error was thrown"};
}

}  // namespace atb::testing

// Expects an Error of this code whose message contains each of the given texts.
#define EXPECT_ATB_ERROR(statement, expected_code, ...)                                               \
  do {                                                                                                \
    const auto [got_code, got_text] = ::atb::testing::error_of([&] { (void)(statement); });           \
    EXPECT_EQ(static_cast<int>(got_code), static_cast<int>(expected_code)) << got_text;               \
    for (const std::string& part : std::vector<std::string>{__VA_ARGS__}) {                           \
      EXPECT_NE(got_text.find(part), std::string::npos) << "\"" << part << "\" not in: " << got_text; \
    }                                                                                                 \
  } while (false)
