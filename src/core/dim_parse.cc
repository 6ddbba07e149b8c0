// SPDX-License-Identifier: Apache-2.0
// Reads the text of a dimension: sum := [-] product {(+|-) product}, product := factor {* factor},
// factor := integer | symbol | function(sum, sum) | (sum). Length and nesting are bounded.
#include <charconv>
#include <limits>

#include "core/_dim_poly.h"
#include "core/error.h"

namespace atb {
namespace {

constexpr size_t kMaxText = 4096;
constexpr int kMaxDepth = 32;

class DimParser {
 public:
  explicit DimParser(std::string_view text) : text_(text) {}

  Dim parse() {
    if (text_.size() > kMaxText) fail("is too long");
    const Dim result = sum(0);
    skip_spaces();
    if (at_ != text_.size()) fail("has text after its end");
    return result;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw_error(Code::kInvalidArgument, "[dim] \"", text_.substr(0, 80), "\" ", what, ", at character ", at_ + 1);
  }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  bool take(char c) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!take(c)) fail(std::string("lacks a ") + c);
  }

  Dim sum(int depth) {
    if (depth > kMaxDepth) fail("is nested too deeply");
    const bool negative = take('-');
    Dim result = product(depth);
    if (negative) result = Dim(int64_t{0}) - result;
    while (true) {
      if (take('+')) {
        result = result + product(depth);
      } else if (take('-')) {
        result = result - product(depth);
      } else {
        return result;
      }
    }
  }

  Dim product(int depth) {
    Dim result = factor(depth);
    while (take('*')) result = result * factor(depth);
    return result;
  }

  Dim factor(int depth) {
    if (take('(')) {
      const Dim inner = sum(depth + 1);
      expect(')');
      return inner;
    }
    skip_spaces();
    const size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word.empty()) fail("lacks a number or symbol");
    if (word[0] >= '0' && word[0] <= '9') return integer(word);
    if (word == "floordiv") return function(&Dim::floordiv, depth);
    if (word == "mod") return function(&Dim::mod, depth);
    if (word == "min") return function(&Dim::min, depth);
    if (word == "max") return function(&Dim::max, depth);
    if (!dim::is_symbol_name(word)) fail("has a bad symbol");
    // The widest range: nothing is simplified that a narrower or other one would not allow.
    return Dim::symbol(word, 0, std::numeric_limits<int64_t>::max());
  }

  Dim integer(std::string_view word) const {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) fail("has a bad number");
    return Dim(value);
  }

  Dim function(Dim (*apply)(const Dim&, const Dim&), int depth) {
    expect('(');
    const Dim a = sum(depth + 1);
    expect(',');
    const Dim b = sum(depth + 1);
    expect(')');
    return apply(a, b);
  }

  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Dim Dim::parse(std::string_view text) { return DimParser(text).parse(); }

}  // namespace atb
