// SPDX-License-Identifier: Apache-2.0
// What a value is as a function of its own indices: an affine form, an element of another value, a condition on such
// forms, or a mask.
#pragma once

#include <map>
#include <optional>
#include <string>
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
};

// source[at...] + offset: an element of an integer value that the analysis cannot look into, such as the number of a
// packed sequence. Sums are taken not to overflow.
struct Element {
  size_t rank = 0;
  const Value* source = nullptr;
  std::vector<Affine> at;  // as of Read
  double offset = 0;
};

// Two elements of one value, at positions of which each has an axis of its own.
struct Relation {
  enum class Kind { kAtMost, kEqual, kUnequal };
  Kind kind = Kind::kEqual;
  Element a;
  Element b;
};

// A condition: all forms are <= 0, all reads are true, all relations hold. None of them: always. Also stands for
// numbers that are 1 where it holds and 0 elsewhere.
struct Region {
  size_t rank = 0;
  std::vector<Affine> at_most_zero;
  std::vector<Read> reads;
  std::vector<Relation> relations = {};

  bool always() const { return at_most_zero.empty() && reads.empty() && relations.empty(); }
  bool never() const;  // in the one spelling that the evaluation gives it
};
Region everywhere(size_t rank);
Region nowhere(size_t rank);
// Both conditions, on `rank` axes.
Region both(const Region& a, const Region& b, size_t rank);
// Its negation where that is such a condition again: of one inequality over integers, one read or one relation.
std::optional<Region> complement(const Region& region);

// An additive mask: 0 where `seen`, elsewhere at most -1e30.
struct Mask {
  Region seen;
  bool infinite = false;  // exactly -inf elsewhere
};
using Form = std::variant<Affine, Element, Region, Mask>;

// At or below this a mask value leaves no weight after softmax in any float type, if the row sees another key.
constexpr double kBlocked = -1e30;

// A mask, or a constant that is one: 0 sees everything, a blocked value nothing.
std::optional<Mask> as_mask(const Form& form);

// Evaluates values of one graph, once each. This is a proof: what is not followed has no form. Follows iota, views,
// broadcast, slice, concat of consecutive pieces, take at affine indices, casts, sums, comparisons, logic, where. Other
// booleans are read as they are, other integers are elements of themselves.
class IndexForms {
 public:
  std::optional<Form> evaluate(const Value* value);
  // The affine form, if that is what it is; a condition that always or never holds counts as 1 or 0.
  std::optional<Affine> affine(const Value* value);
  // The first thing that was not followed.
  const std::string& why() const { return why_; }

 private:
  static constexpr int kMaxVisited = 512;
  static constexpr int kMaxDepth = 96;

  void note(const std::string& what);
  std::optional<Form> constant(const Value& value);
  std::optional<Form> opaque(const Value& value);
  std::optional<Form> operation(const Node& node);
  std::optional<Form> reshape(const Node& node);
  std::optional<Form> transpose(const Node& node);
  std::optional<Form> broadcast(const Node& node);
  std::optional<Form> slice(const Node& node);
  std::optional<Form> concat(const Node& node);
  std::optional<Form> take(const Node& node);
  std::optional<Form> cumsum(const Node& node);
  std::optional<Form> cast(const Node& node);
  std::optional<Form> where(const Node& node);
  std::optional<Form> compare(const Node& node);
  std::optional<Form> equal(const Node& node);
  std::optional<Form> relate(const Node& node, Relation::Kind kind);
  std::optional<Form> logic(const Node& node);
  std::optional<Form> add_masks(const Form& a, const Form& b, size_t rank);
  std::optional<Form> arithmetic(const Node& node);
  std::optional<Region> region(const Value* value);

  std::map<const Value*, std::optional<Form>> forms_;
  std::string why_;
  int visited_ = 0;
  int depth_ = 0;
};

}  // namespace atb
