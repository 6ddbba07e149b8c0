// SPDX-License-Identifier: Apache-2.0
// The four pairs of two choices, and how many numbers they leave.
#include "passes/analysis/choice.h"

#include <cmath>
#include <limits>

namespace atb {
namespace {

std::optional<Region> side(const Choice& choice, bool yes) {
  return yes ? std::optional(choice.holds) : complement(choice.holds);
}

std::optional<Form> one_of(const Region& where, double yes, double no) {
  if (std::isnan(yes) || std::isnan(no)) return std::nullopt;
  return made({.holds = where, .yes = yes, .no = no});
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double whole_within(double number, double low, double high) {
  return std::floor(number) == number && number >= low && number <= high ? number : kNaN;
}

}  // namespace

std::optional<Form> mapped(const Choice& a, const std::function<double(double)>& f) {
  return one_of(a.holds, f(a.yes), f(a.no));
}

std::optional<Form> mapped(const Choice& a, const Choice& b, size_t rank,
                           const std::function<double(double, double)>& f) {
  const Region where_a = align(a.holds, rank);
  const Region where_b = align(b.holds, rank);
  if (where_a == where_b) return one_of(where_a, f(a.yes, b.yes), f(a.no, b.no));
  if (complement(where_b) == where_a) return one_of(where_a, f(a.yes, b.no), f(a.no, b.yes));
  const double numbers[2][2] = {{f(a.no, b.no), f(a.no, b.yes)}, {f(a.yes, b.no), f(a.yes, b.yes)}};
  for (const auto& row : numbers) {
    if (std::isnan(row[0]) || std::isnan(row[1])) return std::nullopt;
  }
  if (numbers[0][0] == numbers[0][1] && numbers[1][0] == numbers[1][1]) {  // whatever b is
    return made({.holds = where_a, .yes = numbers[1][0], .no = numbers[0][0]});
  }
  if (numbers[0][0] == numbers[1][0] && numbers[0][1] == numbers[1][1]) {  // whatever a is
    return made({.holds = where_b, .yes = numbers[0][1], .no = numbers[0][0]});
  }
  for (const bool i : {true, false}) {
    for (const bool j : {true, false}) {  // one pair against the three others
      const double others = numbers[!i][j];
      if (numbers[i][!j] != others || numbers[!i][!j] != others) continue;
      const std::optional<Region> of_a = side(a, i);
      const std::optional<Region> of_b = side(b, j);
      if (!of_a || !of_b) return std::nullopt;
      return made({.holds = both(*of_a, *of_b, rank), .yes = numbers[i][j], .no = others});
    }
  }
  return std::nullopt;
}

double rounded(double number, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return number;
    case DType::kF32:
      return static_cast<double>(static_cast<float>(number));
    case DType::kF16:
      return f16_to_f32(f32_to_f16(static_cast<float>(number)));
    case DType::kBF16:
      return bf16_to_f32(f32_to_bf16(static_cast<float>(number)));
    case DType::kBool:
      return number != 0 ? 1 : 0;
    case DType::kI8:
      return whole_within(number, -128, 127);
    case DType::kU8:
      return whole_within(number, 0, 255);
    case DType::kI32:
      return whole_within(number, -2147483648.0, 2147483647.0);
    case DType::kI64:
      return whole_within(number, -0x1p53, 0x1p53);
    case DType::kState:
      break;
  }
  return kNaN;
}

}  // namespace atb
