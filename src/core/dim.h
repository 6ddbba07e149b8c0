// SPDX-License-Identifier: Apache-2.0
// Dimensions: normalized integer polynomials over ranged symbols, plus floordiv, mod, min and max of such.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace atb {

enum class Tri { kNo, kYes, kUnknown };

// Values of symbols for one step: {"T": 512, "B": 1}.
using Bindings = std::map<std::string, int64_t, std::less<>>;

// Inclusive range of a symbol.
struct SymbolRange {
  int64_t lo = 0;
  int64_t hi = 0;
  friend bool operator==(const SymbolRange&, const SymbolRange&) = default;
};
using SymbolRanges = std::map<std::string, SymbolRange, std::less<>>;

// An immutable symbolic integer. Normal form: sum of coefficient * product of atoms; an atom is a symbol or a
// floordiv/mod/min/max of two Dims. Structural equality of normal forms is mathematical equality for polynomials.
class Dim {
 public:
  Dim(int64_t value = 0);                               // NOLINT: integers are dims
  Dim(int value) : Dim(static_cast<int64_t>(value)) {}  // NOLINT
  // A symbol with an inclusive range; the same name always means the same symbol, whatever range it is given: a range
  // is a fact that narrows bounds, not part of the identity. `lo` must be >= 0, `hi` at least `lo`.
  static Dim symbol(std::string_view name, int64_t lo = 1, int64_t hi = int64_t{1} << 40);

  bool is_constant() const;
  int64_t constant() const;  // throws kInternal unless is_constant()

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);  // overflow throws kInvalidArgument
  static Dim floordiv(const Dim& a, const Dim& b);
  static Dim mod(const Dim& a, const Dim& b);
  static Dim min(const Dim& a, const Dim& b);
  static Dim max(const Dim& a, const Dim& b);

  // Structural identity of the normal form.
  friend bool operator==(const Dim& a, const Dim& b);

  int64_t lower() const;  // proven bounds from symbol ranges
  int64_t upper() const;

  // Value under `bindings`; an unbound symbol or overflow throws kInvalidArgument naming it.
  int64_t eval(const Bindings& bindings) const;
  // Replaces symbols by dims.
  Dim substitute(const std::map<std::string, Dim, std::less<>>& replacements) const;

  std::string str() const;  // "T", "2*T + 3", "floordiv(T, 16)"
  // Inverse of str(); kInvalidArgument on bad text. Symbols get the range [0, 2^63): substitute() narrower ones.
  static Dim parse(std::string_view text);

  struct Poly;  // the normal form, in dim.cc
  // Null for a constant.
  const Poly* poly() const { return poly_.get(); }
  static Dim from_poly(Poly poly);

 private:
  explicit Dim(std::shared_ptr<const Poly> poly);
  int64_t value_ = 0;                 // when poly_ is null
  std::shared_ptr<const Poly> poly_;  // non-constant normal form
};

// Adds the symbols of `dim` with their ranges; where a symbol is already there, the ranges are intersected.
void collect_symbols(const Dim& dim, SymbolRanges& ranges);

// yes: proven equal; no: proven different by ranges; unknown otherwise. Unknown never matches a pattern.
Tri equal(const Dim& a, const Dim& b);

using Shape = std::vector<Dim>;

std::string to_string(const Shape& shape);  // "[T, 576]"
Tri equal(const Shape& a, const Shape& b);
Dim num_elements(const Shape& shape);
std::vector<int64_t> eval(const Shape& shape, const Bindings& bindings);

}  // namespace atb
