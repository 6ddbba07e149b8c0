// SPDX-License-Identifier: Apache-2.0
// Characters to words for the graph parser.
#include <charconv>

#include "core/error.h"
#include "ir/_text_common.h"
#include "ir/_text_lexer.h"

namespace atb::text {
namespace {

constexpr size_t kMaxWord = 4096;
constexpr int kMaxNesting = 32;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

void Lexer::fail(const std::string& what) const {
  throw_error(Code::kInvalidArgument, "[graph text] line ", line_, ": ", what);
}

void Lexer::skip_blanks() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
    } else if (c == '#') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      continue;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      return;
    }
    ++at_;
  }
}

bool Lexer::at_end() {
  skip_blanks();
  return at_ == text_.size();
}

// What is not taken leaves the blanks before it, and so the line that messages name, alone.
bool Lexer::take(char c) {
  const Lexer before = *this;
  skip_blanks();
  if (at_ < text_.size() && text_[at_] == c) {
    ++at_;
    return true;
  }
  *this = before;
  return false;
}

void Lexer::expect(char c) {
  if (take(c)) return;
  skip_blanks();
  const std::string found = at_ < text_.size() ? quoted(text_.substr(at_, 1)) : "the end";
  fail(std::string("expected '") + c + "', found " + found);
}

bool Lexer::take_word(std::string_view expected) {
  const Lexer before = *this;
  skip_blanks();
  const size_t end = at_ + expected.size();
  const bool found =
      text_.substr(at_, expected.size()) == expected && !(end < text_.size() && is_name_char(text_[end]));
  if (found) {
    at_ = end;
  } else {
    *this = before;
  }
  return found;
}

std::string_view Lexer::word() {
  skip_blanks();
  const size_t begin = at_;
  while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
  if (begin == at_) fail("expected a name");
  if (at_ - begin > kMaxWord) fail("a name is too long");
  return text_.substr(begin, at_ - begin);
}

std::string Lexer::name() {
  skip_blanks();
  std::string result = peek() == '"' ? quoted_text() : std::string(word());
  if (result.empty()) fail("a name is empty");
  return result;
}

std::string Lexer::quoted_text() {
  expect('"');
  std::string result;
  while (peek() != '"') {
    if (at_ >= text_.size() || text_[at_] == '\n') fail("a text in quotes has no end on its line");
    if (result.size() >= kMaxWord) fail("a text in quotes is too long");
    char c = text_[at_++];
    if (c == '\\') {
      c = peek();
      ++at_;
      if (c == 'n') {
        c = '\n';
      } else if (c == 'x') {
        const int high = hex_digit(peek());
        const int low = at_ + 1 < text_.size() ? hex_digit(text_[at_ + 1]) : -1;
        if (high < 0 || low < 0) fail("a bad \\x in quotes");
        c = static_cast<char>(high * 16 + low);
        at_ += 2;
      } else if (c != '"' && c != '\\') {
        fail("a bad escape in quotes");
      }
    }
    result += c;
  }
  ++at_;
  return result;
}

std::string_view Lexer::number_text() {
  skip_blanks();
  const size_t begin = at_;
  const auto is_part = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '+' || c == '-' || c == '.';
  };
  while (at_ < text_.size() && is_part(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

template <class Number>
Number Lexer::number(const char* kind) {
  const std::string_view digits = number_text();
  Number value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    fail(std::string("expected ") + kind + ", found " + quoted(digits.substr(0, 40)));
  }
  return value;
}

int64_t Lexer::integer() { return number<int64_t>("an integer"); }

double Lexer::real() { return number<double>("a number"); }

float Lexer::real_f32() { return number<float>("a number"); }

bool Lexer::boolean() {
  if (take_word("true")) return true;
  if (take_word("false")) return false;
  fail("expected true or false");
}

std::string_view Lexer::dim_text() {
  skip_blanks();
  const size_t begin = at_;
  int depth = 0;
  while (at_ < text_.size() && text_[at_] != '\n') {
    const char c = text_[at_];
    if (depth == 0 && (c == ',' || c == ']')) break;
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (depth < 0 || depth > kMaxNesting) break;
    ++at_;
  }
  std::string_view dim = text_.substr(begin, at_ - begin);
  while (!dim.empty() && dim.back() == ' ') dim.remove_suffix(1);
  return dim;
}

}  // namespace atb::text
