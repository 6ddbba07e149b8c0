// SPDX-License-Identifier: Apache-2.0
// What the printer and the parser of graph text agree on: words, escapes, numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace atb::text {

// Constants of at most this many plain elements are printed with their values.
constexpr int64_t kMaxPrintedElements = 16;

// Characters of a name that needs no quotes.
inline bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '-' || c == '/' || c == '\'';
}

inline bool is_plain_name(std::string_view name) {
  for (const char c : name) {
    if (!is_name_char(c)) return false;
  }
  return !name.empty();
}

// In double quotes, with \" \\ \n and \xNN for quotes, backslashes, newlines and other control characters.
std::string quoted(std::string_view text);

// A name as it stands behind % or @: quoted where it has other characters than names usually have.
std::string printed_name(std::string_view name);

// Shortest decimal that reads back as the same number; always with a point, an exponent, inf or nan.
std::string printed_real(double value);
std::string printed_real(float value);

}  // namespace atb::text
