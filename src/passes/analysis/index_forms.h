// SPDX-License-Identifier: Apache-2.0
// Evaluates values as functions of their own indices (passes/analysis/forms.h).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "ir/graph.h"
#include "passes/analysis/forms.h"

namespace atb {

// Evaluates values of one graph, once each. This is a proof: what is not followed has no form. Follows constants, iota,
// views, broadcast, slice, concat of consecutive pieces, take and embedding at affine indices, casts, arithmetic,
// comparisons, logic, where. Other booleans are read as they are, other integers are elements of themselves.
class IndexForms {
 public:
  std::optional<Form> evaluate(const Value* value);
  // The affine form, if that is what it is; a condition that always or never holds counts as 1 or 0.
  std::optional<Affine> affine(const Value* value) { return as_affine(evaluate(value)); }
  // The first thing that was not followed.
  const std::string& why() const { return why_; }

 private:
  static constexpr int kMaxVisited = 512;
  static constexpr int kMaxDepth = 96;

  void note(const Value& value);
  std::optional<Form> opaque(const Value& value);
  std::optional<Form> operation(const Node& node);
  // Views (index_views.cc).
  std::optional<Form> reshape(const Node& node);
  std::optional<Form> transpose(const Node& node);
  std::optional<Form> broadcast(const Node& node);
  std::optional<Form> slice(const Node& node);
  std::optional<Form> concat(const Node& node);
  std::optional<Form> take(const Node& node);
  std::optional<Form> embedding(const Node& node);
  std::optional<Form> cumsum(const Node& node);
  // Operators on numbers (index_numbers.cc).
  std::optional<Form> unary(const Node& node);
  std::optional<Form> binary(const Node& node);
  std::optional<Form> where(const Node& node);

  std::map<const Value*, std::optional<Form>> forms_;
  std::string why_;
  int visited_ = 0;
  int depth_ = 0;
};

}  // namespace atb
