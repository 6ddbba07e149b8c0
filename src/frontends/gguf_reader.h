// SPDX-License-Identifier: Apache-2.0
// A cursor over the bytes of a GGUF header: every read is checked against what is left.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "frontends/gguf_metadata.h"

namespace atb {

class GgufReader {
 public:
  GgufReader(std::span<const std::byte> bytes, std::string where) : bytes_(bytes), where_(std::move(where)) {}

  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }
  const std::string& where() const { return where_; }

  // `what` names the thing read, for the message when the file ends before it does.
  std::span<const std::byte> take(uint64_t size, std::string_view what);
  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }
  std::string_view string(std::string_view what);
  GgufType type(std::string_view what);
  GgufValue value(GgufType type, std::string_view key);
  // Checks that `count` things of at least `min_bytes` each can still come.
  void check_count(uint64_t count, uint64_t min_bytes, std::string_view what) const;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_error(Code::kDataLoss, where_, ": ", parts...);
  }

 private:
  GgufArray array(std::string_view key, int depth);

  std::span<const std::byte> bytes_;
  std::string where_;
  size_t position_ = 0;
};

}  // namespace atb
