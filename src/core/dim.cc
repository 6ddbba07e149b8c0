// SPDX-License-Identifier: Apache-2.0
// Arithmetic of dimensions: normal forms of integer polynomials, bounds by interval arithmetic, evaluation.
#include "core/dim.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "core/_dim_poly.h"
#include "core/error.h"

namespace atb {
namespace {

using dim::Atom;
using dim::AtomRef;
using dim::Interval;
using dim::Term;

// Limits on normal forms, so that text from outside cannot make them explode.
constexpr size_t kMaxTerms = 64;
constexpr size_t kMaxDegree = 16;
constexpr size_t kMaxKey = 2048;

[[noreturn]] void overflow() { throw_error(Code::kInvalidArgument, "[dim] integer overflow in a dimension"); }

int64_t add_checked(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result)) overflow();
  return result;
}

int64_t mul_checked(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) overflow();
  return result;
}

// Quotient rounded to minus infinity; b != 0.
int64_t floordiv_checked(int64_t a, int64_t b) {
  if (b == 0) throw_error(Code::kInvalidArgument, "[dim] division of ", a, " by zero");
  if (b == -1) return mul_checked(a, -1);
  const int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

// Remainder with the sign of b; b != 0.
int64_t mod_checked(int64_t a, int64_t b) {
  if (b == 0) throw_error(Code::kInvalidArgument, "[dim] remainder of ", a, " by zero");
  if (b == -1) return 0;
  const int64_t remainder = a % b;
  return (remainder != 0 && (remainder < 0) != (b < 0)) ? remainder + b : remainder;
}

// Bounds saturate at the ends of int64: a value beyond them cannot be evaluated anyway.
int64_t clamp(__int128 value) {
  return static_cast<int64_t>(
      std::clamp<__int128>(value, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
}

Interval product(Interval a, Interval b) {
  const __int128 corners[] = {static_cast<__int128>(a.lo) * b.lo, static_cast<__int128>(a.lo) * b.hi,
                              static_cast<__int128>(a.hi) * b.lo, static_cast<__int128>(a.hi) * b.hi};
  return {clamp(*std::min_element(std::begin(corners), std::end(corners))),
          clamp(*std::max_element(std::begin(corners), std::end(corners)))};
}

bool same_atoms(const std::vector<AtomRef>& a, const std::vector<AtomRef>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](const AtomRef& x, const AtomRef& y) { return x->key == y->key; });
}

// Order of terms: higher degree first, then by names.
bool term_before(const Term& a, const Term& b) {
  if (a.atoms.size() != b.atoms.size()) return a.atoms.size() > b.atoms.size();
  return std::lexicographical_compare(a.atoms.begin(), a.atoms.end(), b.atoms.begin(), b.atoms.end(),
                                      [](const AtomRef& x, const AtomRef& y) { return x->key < y->key; });
}

// Terms of a Dim; a constant has one term without atoms, zero has none.
std::vector<Term> terms_of(const Dim& dim) {
  if (dim.poly() != nullptr) return dim.poly()->terms;
  if (dim.constant() == 0) return {};
  return {{dim.constant(), {}}};
}

Dim from_terms(std::vector<Term> terms) {
  std::stable_sort(terms.begin(), terms.end(), term_before);
  std::vector<Term> merged;
  for (Term& term : terms) {
    if (!merged.empty() && same_atoms(merged.back().atoms, term.atoms)) {
      merged.back().coefficient = add_checked(merged.back().coefficient, term.coefficient);
    } else {
      if (!merged.empty() && merged.back().coefficient == 0) merged.pop_back();
      merged.push_back(std::move(term));
    }
  }
  if (!merged.empty() && merged.back().coefficient == 0) merged.pop_back();
  if (merged.empty()) return Dim(int64_t{0});
  if (merged.size() == 1 && merged[0].atoms.empty()) return Dim(merged[0].coefficient);
  require(merged.size() <= kMaxTerms, Code::kInvalidArgument, "[dim] a dimension of more than ", kMaxTerms, " terms");
  return Dim::from_poly({std::move(merged)});
}

Term multiply(const Term& a, const Term& b) {
  Term result{mul_checked(a.coefficient, b.coefficient), a.atoms};
  result.atoms.insert(result.atoms.end(), b.atoms.begin(), b.atoms.end());
  require(result.atoms.size() <= kMaxDegree, Code::kInvalidArgument, "[dim] a dimension of degree over ", kMaxDegree);
  std::stable_sort(result.atoms.begin(), result.atoms.end(),
                   [](const AtomRef& x, const AtomRef& y) { return x->key < y->key; });
  return result;
}

Dim atom_dim(Atom atom) {
  require(atom.key.size() <= kMaxKey, Code::kInvalidArgument, "[dim] a dimension is too long");
  return Dim::from_poly({{Term{1, {std::make_shared<const Atom>(std::move(atom))}}}});
}

Dim compound(Atom::Kind kind, std::string_view function, const Dim& a, const Dim& b) {
  std::string key;
  key.append(function).append("(").append(a.str()).append(", ").append(b.str()).append(")");
  return atom_dim({kind, std::move(key), {}, a, b});
}

// term / divisor where that is exact.
std::optional<Term> divide(const Term& term, const Term& divisor) {
  if (term.coefficient % divisor.coefficient != 0) return std::nullopt;
  Term quotient{term.coefficient / divisor.coefficient, {}};
  size_t used = 0;
  for (const AtomRef& atom : term.atoms) {  // both sorted by key
    if (used < divisor.atoms.size() && divisor.atoms[used]->key == atom->key) {
      ++used;
    } else {
      quotient.atoms.push_back(atom);
    }
  }
  if (used != divisor.atoms.size()) return std::nullopt;
  return quotient;
}

// a / b where b is one term that is never zero and divides every term of a.
std::optional<Dim> divide_exactly(const Dim& a, const Dim& b) {
  const std::vector<Term> divisor = terms_of(b);
  if (divisor.size() != 1 || (b.lower() <= 0 && b.upper() >= 0) || divisor[0].coefficient == -1) return std::nullopt;
  std::vector<Term> quotient;
  for (const Term& term : terms_of(a)) {
    std::optional<Term> part = divide(term, divisor[0]);
    if (!part) return std::nullopt;
    quotient.push_back(std::move(*part));
  }
  return from_terms(std::move(quotient));
}

// a = divisor * quotient + rest with the coefficients of rest in [0, divisor).
struct Split {
  Dim quotient;
  Dim rest;
};

Split split(const Dim& a, int64_t divisor) {
  std::vector<Term> quotient;
  std::vector<Term> rest;
  for (const Term& term : terms_of(a)) {
    const int64_t remainder = mod_checked(term.coefficient, divisor);
    const int64_t whole = floordiv_checked(term.coefficient, divisor);
    if (whole != 0) quotient.push_back({whole, term.atoms});
    if (remainder != 0) rest.push_back({remainder, term.atoms});
  }
  return {from_terms(std::move(quotient)), from_terms(std::move(rest))};
}

bool within(const Dim& dim, int64_t lo, int64_t hi) { return dim.lower() >= lo && dim.upper() <= hi; }

// The smaller (or larger) of two dims where their order is proven.
std::optional<bool> less_or_equal(const Dim& a, const Dim& b) {
  try {
    const Dim difference = b - a;
    if (difference.lower() >= 0) return true;
    if (difference.upper() <= 0) return false;
  } catch (const Error&) {  // overflow: not proven
  }
  return std::nullopt;
}

Interval term_bounds(const Term& term) {
  Interval bounds{term.coefficient, term.coefficient};
  for (const AtomRef& atom : term.atoms) bounds = product(bounds, dim::bounds(*atom));
  return bounds;
}

Interval dim_bounds(const Dim& value) {
  if (value.poly() == nullptr) return {value.constant(), value.constant()};
  __int128 lo = 0;
  __int128 hi = 0;
  for (const Term& term : value.poly()->terms) {
    const Interval bounds = term_bounds(term);
    lo += bounds.lo;
    hi += bounds.hi;
  }
  return {clamp(lo), clamp(hi)};
}

Interval floordiv_bounds(Interval a, Interval b) {
  if (b.lo <= 0) return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  const int64_t corners[] = {floordiv_checked(a.lo, b.lo), floordiv_checked(a.lo, b.hi), floordiv_checked(a.hi, b.lo),
                             floordiv_checked(a.hi, b.hi)};
  return {*std::min_element(std::begin(corners), std::end(corners)),
          *std::max_element(std::begin(corners), std::end(corners))};
}

Interval mod_bounds(Interval a, Interval b) {
  if (b.lo <= 0) return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  if (a.lo >= 0) return {0, std::min(a.hi, b.hi - 1)};
  return {0, b.hi - 1};
}

int64_t eval_atom(const Atom& atom, const Bindings& bindings) {
  if (atom.kind == Atom::kSymbol) {
    const auto it = bindings.find(atom.key);
    require(it != bindings.end(), Code::kInvalidArgument, "[dim] symbol ", atom.key, " has no value");
    return it->second;
  }
  const int64_t a = atom.a.eval(bindings);
  const int64_t b = atom.b.eval(bindings);
  switch (atom.kind) {
    case Atom::kFloorDiv:
      return floordiv_checked(a, b);
    case Atom::kMod:
      return mod_checked(a, b);
    case Atom::kMin:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
}

Dim substitute_atom(const AtomRef& atom, const std::map<std::string, Dim, std::less<>>& replacements) {
  switch (atom->kind) {
    case Atom::kSymbol: {
      const auto it = replacements.find(atom->key);
      return it != replacements.end() ? it->second : Dim::from_poly({{Term{1, {atom}}}});
    }
    case Atom::kFloorDiv:
      return Dim::floordiv(atom->a.substitute(replacements), atom->b.substitute(replacements));
    case Atom::kMod:
      return Dim::mod(atom->a.substitute(replacements), atom->b.substitute(replacements));
    case Atom::kMin:
      return Dim::min(atom->a.substitute(replacements), atom->b.substitute(replacements));
    default:
      return Dim::max(atom->a.substitute(replacements), atom->b.substitute(replacements));
  }
}

}  // namespace

Interval dim::bounds(const Atom& atom) {
  if (atom.kind == Atom::kSymbol) return atom.range;
  const Interval a = dim_bounds(atom.a);
  const Interval b = dim_bounds(atom.b);
  switch (atom.kind) {
    case Atom::kFloorDiv:
      return floordiv_bounds(a, b);
    case Atom::kMod:
      return mod_bounds(a, b);
    case Atom::kMin:
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    default:
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
  }
}

bool dim::is_symbol_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (name.empty() || name.size() > 64 || !letter(name[0])) return false;
  if (name == "floordiv" || name == "mod" || name == "min" || name == "max") return false;
  return std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

Dim::Dim(int64_t value) : value_(value) {}

Dim::Dim(std::shared_ptr<const Poly> poly) : poly_(std::move(poly)) {}

Dim Dim::from_poly(Poly poly) { return Dim(std::make_shared<const Poly>(std::move(poly))); }

Dim Dim::symbol(std::string_view name, int64_t lo, int64_t hi) {
  require(dim::is_symbol_name(name), Code::kInvalidArgument, "[dim] \"", name, "\" is no name of a symbol");
  require(lo >= 0 && hi >= lo, Code::kInvalidArgument, "[dim] symbol ", name, ": bad range [", lo, ", ", hi, "]");
  return atom_dim({Atom::kSymbol, std::string(name), {lo, hi}, {}, {}});
}

bool Dim::is_constant() const { return poly_ == nullptr; }

int64_t Dim::constant() const {
  require(is_constant(), Code::kInternal, "[dim] ", is_constant() ? "" : str(), " is not a constant");
  return value_;
}

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return Dim(add_checked(a.value_, b.value_));
  std::vector<Term> terms = terms_of(a);
  const std::vector<Term> more = terms_of(b);
  terms.insert(terms.end(), more.begin(), more.end());
  return from_terms(std::move(terms));
}

Dim operator-(const Dim& a, const Dim& b) { return a + Dim(int64_t{-1}) * b; }

Dim operator*(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return Dim(mul_checked(a.value_, b.value_));
  std::vector<Term> terms;
  const std::vector<Term> right = terms_of(b);
  for (const Term& x : terms_of(a)) {
    for (const Term& y : right) terms.push_back(multiply(x, y));
  }
  return from_terms(std::move(terms));
}

Dim Dim::floordiv(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return Dim(floordiv_checked(a.value_, b.value_));
  if (const std::optional<Dim> quotient = divide_exactly(a, b)) return *quotient;
  if (!b.is_constant() || b.value_ <= 0) {
    require(!b.is_constant() || b.value_ != 0, Code::kInvalidArgument, "[dim] division by zero");
    if (a.lower() >= 0 && b.lower() > a.upper()) return Dim(int64_t{0});
    return compound(Atom::kFloorDiv, "floordiv", a, b);
  }
  const Split parts = split(a, b.value_);
  if (within(parts.rest, 0, b.value_ - 1)) return parts.quotient;
  return parts.quotient + compound(Atom::kFloorDiv, "floordiv", parts.rest, b);
}

Dim Dim::mod(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return Dim(mod_checked(a.value_, b.value_));
  if (divide_exactly(a, b)) return Dim(int64_t{0});
  if (!b.is_constant() || b.value_ <= 0) {
    require(!b.is_constant() || b.value_ != 0, Code::kInvalidArgument, "[dim] remainder by zero");
    if (a.lower() >= 0 && b.lower() > a.upper()) return a;
    return compound(Atom::kMod, "mod", a, b);
  }
  const Dim rest = split(a, b.value_).rest;
  if (within(rest, 0, b.value_ - 1)) return rest;
  return compound(Atom::kMod, "mod", rest, b);
}

Dim Dim::min(const Dim& a, const Dim& b) {
  if (const std::optional<bool> known = less_or_equal(a, b)) return *known ? a : b;
  return a.str() <= b.str() ? compound(Atom::kMin, "min", a, b) : compound(Atom::kMin, "min", b, a);
}

Dim Dim::max(const Dim& a, const Dim& b) {
  if (const std::optional<bool> known = less_or_equal(a, b)) return *known ? b : a;
  return a.str() <= b.str() ? compound(Atom::kMax, "max", a, b) : compound(Atom::kMax, "max", b, a);
}

bool operator==(const Dim& a, const Dim& b) {
  if (a.poly_ == b.poly_) return a.value_ == b.value_;
  if (a.poly_ == nullptr || b.poly_ == nullptr) return false;
  const std::vector<Term>& x = a.poly_->terms;
  const std::vector<Term>& y = b.poly_->terms;
  return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), [](const Term& s, const Term& t) {
           return s.coefficient == t.coefficient && same_atoms(s.atoms, t.atoms);
         });
}

int64_t Dim::lower() const { return dim_bounds(*this).lo; }

int64_t Dim::upper() const { return dim_bounds(*this).hi; }

int64_t Dim::eval(const Bindings& bindings) const {
  if (is_constant()) return value_;
  int64_t sum = 0;
  for (const Term& term : poly_->terms) {
    int64_t value = term.coefficient;
    for (const AtomRef& atom : term.atoms) value = mul_checked(value, eval_atom(*atom, bindings));
    sum = add_checked(sum, value);
  }
  return sum;
}

Dim Dim::substitute(const std::map<std::string, Dim, std::less<>>& replacements) const {
  if (is_constant()) return *this;
  Dim sum;
  for (const Term& term : poly_->terms) {
    Dim value(term.coefficient);
    for (const AtomRef& atom : term.atoms) value = value * substitute_atom(atom, replacements);
    sum = sum + value;
  }
  return sum;
}

std::string Dim::str() const {
  if (is_constant()) return std::to_string(value_);
  std::string text;
  for (const Term& term : poly_->terms) {
    std::string product;
    for (const AtomRef& atom : term.atoms) product += (product.empty() ? "" : "*") + atom->key;
    const bool negative = term.coefficient < 0;
    const std::string digits = std::to_string(term.coefficient).substr(negative ? 1 : 0);
    if (product.empty()) {
      product = digits;
    } else if (digits != "1") {
      product = digits + "*" + product;
    }
    if (text.empty()) {
      text = (negative ? "-" : "") + product;
    } else {
      text += (negative ? " - " : " + ") + product;
    }
  }
  return text;
}

void collect_symbols(const Dim& value, SymbolRanges& ranges) {
  if (value.poly() == nullptr) return;
  for (const Term& term : value.poly()->terms) {
    for (const AtomRef& atom : term.atoms) {
      if (atom->kind != Atom::kSymbol) {
        collect_symbols(atom->a, ranges);
        collect_symbols(atom->b, ranges);
        continue;
      }
      const auto [it, fresh] = ranges.try_emplace(atom->key, SymbolRange{atom->range.lo, atom->range.hi});
      if (fresh) continue;
      it->second.lo = std::max(it->second.lo, atom->range.lo);
      it->second.hi = std::min(it->second.hi, atom->range.hi);
    }
  }
}

Tri equal(const Dim& a, const Dim& b) {
  try {
    const Dim difference = a - b;
    if (difference.is_constant()) return difference.constant() == 0 ? Tri::kYes : Tri::kNo;
    if (difference.lower() > 0 || difference.upper() < 0) return Tri::kNo;
    // sum of multiples of g is never an integer that g does not divide
    int64_t divisor = 0;
    int64_t constant = 0;
    for (const Term& term : difference.poly()->terms) {
      if (term.atoms.empty()) {
        constant = term.coefficient;
      } else if (term.coefficient != std::numeric_limits<int64_t>::min()) {
        divisor = std::gcd(divisor, term.coefficient);
      } else {
        return Tri::kUnknown;
      }
    }
    return constant % divisor != 0 ? Tri::kNo : Tri::kUnknown;
  } catch (const Error&) {  // overflow: nothing is proven
    return Tri::kUnknown;
  }
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + shape[i].str();
  return text + "]";
}

Tri equal(const Shape& a, const Shape& b) {
  if (a.size() != b.size()) return Tri::kNo;
  Tri result = Tri::kYes;
  for (size_t i = 0; i < a.size(); ++i) {
    const Tri axis = equal(a[i], b[i]);
    if (axis == Tri::kNo) return Tri::kNo;
    if (axis == Tri::kUnknown) result = Tri::kUnknown;
  }
  return result;
}

Dim num_elements(const Shape& shape) {
  Dim product(int64_t{1});
  for (const Dim& extent : shape) product = product * extent;
  return product;
}

std::vector<int64_t> eval(const Shape& shape, const Bindings& bindings) {
  std::vector<int64_t> result;
  result.reserve(shape.size());
  for (const Dim& extent : shape) result.push_back(extent.eval(bindings));
  return result;
}

}  // namespace atb
