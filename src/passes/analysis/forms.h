// SPDX-License-Identifier: Apache-2.0
// What a value is as a function of its own indices: an affine form, an element of another value, one of two numbers by
// a condition on such forms, or a mask.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "ir/graph.h"
#include "passes/analysis/affine.h"

namespace atb {

// An element of a boolean value that the analysis cannot look into, such as a padding mask: source[at...].
struct Read {
  const Value* source = nullptr;
  std::vector<Affine> at;  // one a axis of the source, over the axes of the reader
  bool negated = false;
  friend bool operator==(const Read&, const Read&) = default;
};

// source[at...] + offset: an element of an integer value that the analysis cannot look into, such as the number of a
// packed sequence. Sums are taken not to overflow.
struct Element {
  size_t rank = 0;
  const Value* source = nullptr;
  std::vector<Affine> at;  // as of Read
  double offset = 0;
  friend bool operator==(const Element&, const Element&) = default;
};

// Two elements of one value, at positions of which each has an axis of its own.
struct Relation {
  enum class Kind { kAtMost, kEqual, kUnequal };
  Kind kind = Kind::kEqual;
  Element a;
  Element b;
  friend bool operator==(const Relation&, const Relation&) = default;
};

// A condition: all forms are <= 0, all reads are true, all relations hold. None of them: always.
struct Region {
  size_t rank = 0;
  std::vector<Affine> at_most_zero;
  std::vector<Read> reads;
  std::vector<Relation> relations = {};

  bool always() const { return at_most_zero.empty() && reads.empty() && relations.empty(); }
  bool never() const;                                              // in the one spelling that the evaluation gives it
  friend bool operator==(const Region&, const Region&) = default;  // the same conditions in the same order
};
Region everywhere(size_t rank);
Region nowhere(size_t rank);
// Both conditions, on `rank` axes.
Region both(const Region& a, const Region& b, size_t rank);
// Its negation where that is such a condition again: of one inequality over integers, one read or one relation.
std::optional<Region> complement(const Region& region);

// `yes` where the condition holds, `no` elsewhere: what booleans (1 and 0), triangles and fills are, and what is
// computed of them. Neither number is NaN; they differ, and the condition depends on something (see made()).
struct Choice {
  Region holds;
  double yes = 1;
  double no = 0;
};

// An additive mask: 0 where `seen`, elsewhere at most `highest` <= kHidden.
struct Mask {
  Region seen;
  double highest = 0;
  bool infinite() const;  // exactly -inf elsewhere
};
using Form = std::variant<Affine, Element, Choice, Mask>;

// At or below this a number that is added to a score, or put in its place, hides the key: beside one that is seen, its
// weight is exactly 0, as exp(x) is in f32 from x = -104 down. That takes scores to lie within 4,900 of 0, which no
// graph says, but any model that counts on such a mask keeps: beyond, the mask itself would leak. -1e4 is the smallest
// fill in use, as it fits into f16 as -65504 does; -1e9 and the lowest f32 leave all the room there is.
constexpr double kHidden = -1e4;
// At or below this, adding a score does not change the number: rows of hidden keys alone are uniform.
constexpr double kAbsorbing = -1e30;

// The choice as a form: a constant where only one of its numbers is left.
Form made(Choice choice);
// A choice, or a constant as one that holds everywhere.
std::optional<Choice> as_choice(const Form& form);
// Where a choice or constant is true (not 0), or where it is not.
std::optional<Region> where_it_is(const Form& form, bool truth);
// A mask, or a choice or constant that is one: 0 sees everything, a hiding number nothing.
std::optional<Mask> as_mask(const Form& form);
// An affine form, if that is what it is.
std::optional<Affine> as_affine(const std::optional<Form>& form);

size_t rank_of(const Form& form);
bool depends_on(const Form& form, size_t axis);
// On more axes; numpy broadcasting: axes match from the right.
Element align(Element element, size_t rank);
Region align(const Region& region, size_t rank);
// The form with index[a] replaced by at[a], forms over other axes (all of `rank`).
Form substitute(const Form& form, const std::vector<Affine>& at, size_t rank);
// Conditions that do not depend on indices are decided.
Region simplified(Region region);

}  // namespace atb
