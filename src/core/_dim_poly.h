// SPDX-License-Identifier: Apache-2.0
// The normal form behind Dim: private to the core layer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/dim.h"

namespace atb {
namespace dim {

struct Interval {
  int64_t lo = 0;
  int64_t hi = 0;
};

// What a polynomial is a polynomial in: a symbol, or a function of two dims that is not one.
struct Atom {
  enum Kind { kSymbol, kFloorDiv, kMod, kMin, kMax };
  Kind kind;
  std::string key;  // its text: "T", "floordiv(T, 16)"; equal keys are equal atoms
  Interval range;   // of a symbol
  Dim a, b;         // arguments of a function
};
using AtomRef = std::shared_ptr<const Atom>;

// coefficient * product of atoms; atoms sorted by key, repeated for powers.
struct Term {
  int64_t coefficient = 0;
  std::vector<AtomRef> atoms;
};

Interval bounds(const Atom& atom);
bool is_symbol_name(std::string_view name);

}  // namespace dim

// Terms with coefficients other than zero, higher degrees first, at least one of them with atoms.
struct Dim::Poly {
  std::vector<dim::Term> terms;
};

}  // namespace atb
