// SPDX-License-Identifier: Apache-2.0
// Characters to words for the graph parser, with line numbers for its messages. Reads nothing behind the text's end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace atb::text {

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  // kInvalidArgument "[graph text] line L: <what>".
  [[noreturn]] void fail(const std::string& what) const;

  bool at_end();
  // True, and past it, if the text goes on with `c` (spaces, newlines and comments from # to the end of a line
  // skipped).
  bool take(char c);
  void expect(char c);
  // The same for a whole word.
  bool take_word(std::string_view word);
  // A run of name characters.
  std::string_view word();
  // A name: plain or in quotes.
  std::string name();
  std::string quoted_text();
  int64_t integer();
  double real();
  float real_f32();
  bool boolean();
  // Text of a dimension: up to a , or ] that is not inside parentheses.
  std::string_view dim_text();

 private:
  void skip_blanks();
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  std::string_view number_text();
  template <class Number>
  Number number(const char* kind);

  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

}  // namespace atb::text
