// SPDX-License-Identifier: Apache-2.0
// Operators that work number by number: on positions, on one of two numbers, on masks.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "passes/analysis/choice.h"
#include "passes/analysis/index_forms.h"

namespace atb {
namespace {

using Unary = std::function<double(double)>;
using Binary = std::function<double(double, double)>;

const std::map<std::string, Unary, std::less<>>& unary_functions() {
  static const std::map<std::string, Unary, std::less<>> table = {
      {"cast", [](double x) { return x; }},
      {"log", [](double x) { return std::log(x); }},
      {"logical_not", [](double x) { return x == 0 ? 1.0 : 0.0; }},
      {"neg", [](double x) { return -x; }},
  };
  return table;
}

const std::map<std::string, Binary, std::less<>>& binary_functions() {
  static const std::map<std::string, Binary, std::less<>> table = {
      {"add", [](double a, double b) { return a + b; }},
      {"div", [](double a, double b) { return a / b; }},
      {"equal", [](double a, double b) { return a == b ? 1.0 : 0.0; }},
      {"less", [](double a, double b) { return a < b ? 1.0 : 0.0; }},
      {"less_equal", [](double a, double b) { return a <= b ? 1.0 : 0.0; }},
      {"logical_and", [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }},
      {"logical_or", [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }},
      {"maximum", [](double a, double b) { return std::max(a, b); }},
      {"minimum", [](double a, double b) { return std::min(a, b); }},
      {"mul", [](double a, double b) { return a * b; }},
      {"sub", [](double a, double b) { return a - b; }},
  };
  return table;
}

bool is_wide(DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; }

// Positions of any length survive the cast.
bool keeps_positions(DType dtype) { return is_wide(dtype) || dtype == DType::kF32 || dtype == DType::kF64; }

std::optional<Form> cast_positions(const Affine& form, DType to) {
  if (!form.integral() || !keeps_positions(to)) return std::nullopt;
  return form;
}

std::optional<Form> cast_element(const Element& element, DType from, DType to) {
  const bool widened = to == DType::kI64 || (to == DType::kI32 && from != DType::kI64);
  return widened ? std::optional<Form>(element) : std::nullopt;
}

// --- Positions

std::optional<Form> compare_positions(const Node& node, const Affine& a, const Affine& b, size_t rank) {
  Affine difference = combine(a, b, -1, rank);
  Region holds{.rank = rank, .at_most_zero = {}, .reads = {}};
  if (node.is("less")) {
    if (!difference.integral()) return std::nullopt;
    difference.offset += 1;
  }
  holds.at_most_zero.push_back(difference);
  if (node.is("equal")) holds.at_most_zero.push_back(scaled(difference, -1));
  return made({.holds = simplified(std::move(holds))});
}

std::optional<Form> of_positions(const Node& node, const Affine& a, const Affine& b, size_t rank) {
  if (node.is("equal") || node.is("less") || node.is("less_equal")) return compare_positions(node, a, b, rank);
  if (!std::isfinite(a.offset) || !std::isfinite(b.offset)) return std::nullopt;
  if (node.is("add") || node.is("sub")) return combine(a, b, node.is("sub") ? -1 : 1, rank);
  if (!node.is("mul")) return std::nullopt;
  if (b.constant()) return align(scaled(a, b.offset), rank);
  if (a.constant()) return align(scaled(b, a.offset), rank);
  return std::nullopt;
}

// --- Elements

// An element plus or minus a number.
std::optional<Form> moved(const Node& node, const Form& a, const Form& b, size_t rank) {
  const bool swapped = node.is("add") && std::holds_alternative<Element>(b);
  const Element* element = std::get_if<Element>(swapped ? &b : &a);
  const std::optional<Affine> number = as_affine(swapped ? a : b);
  if (element == nullptr || !number || !number->constant() || !number->integral()) return std::nullopt;
  if ((!node.is("add") && !node.is("sub")) || !is_wide(node.output()->type().dtype)) return std::nullopt;
  Element result = align(*element, rank);
  result.offset += node.is("sub") ? -number->offset : number->offset;
  return result;
}

// Each element is at an axis that the other is not at: a query and a key, say.
bool at_two_positions(const Relation& relation) {
  bool first = false;
  bool second = false;
  const auto depends_on = [](const Element& element, size_t axis) {
    return std::any_of(element.at.begin(), element.at.end(), [axis](const Affine& at) { return at.depends_on(axis); });
  };
  for (size_t axis = 0; axis < relation.a.rank; ++axis) {
    const bool a = depends_on(relation.a, axis);
    const bool b = depends_on(relation.b, axis);
    first = first || (a && !b);
    second = second || (b && !a);
  }
  return first && second;
}

std::optional<Form> related(const Node& node, const Element& a, const Element& b, size_t rank) {
  if (a.source != b.source || !(node.is("equal") || node.is("less") || node.is("less_equal"))) return std::nullopt;
  const auto kind = node.is("equal") ? Relation::Kind::kEqual : Relation::Kind::kAtMost;
  Relation relation{.kind = kind, .a = align(a, rank), .b = align(b, rank)};
  if (node.is("less")) relation.a.offset += 1;
  if (!at_two_positions(relation)) return std::nullopt;
  return Choice{.holds = {.rank = rank, .at_most_zero = {}, .reads = {}, .relations = {std::move(relation)}}};
}

// --- Masks

// 0 + 0 sees, anything else is hidden.
std::optional<Form> added_masks(const Form& a, const Form& b, size_t rank) {
  const std::optional<Mask> first = as_mask(a);
  const std::optional<Mask> second = as_mask(b);
  if (!first || !second) return std::nullopt;
  return Mask{.seen = both(first->seen, second->seen, rank), .highest = std::max(first->highest, second->highest)};
}

// By a number above 0 that leaves hidden what is.
std::optional<Form> scaled_mask(const Form& a, const Form& b, size_t rank, DType dtype) {
  const bool swapped = std::holds_alternative<Mask>(b);
  const Mask* mask = std::get_if<Mask>(swapped ? &b : &a);
  const std::optional<Affine> factor = as_affine(swapped ? a : b);
  if (mask == nullptr || !factor || !factor->constant() || !(factor->offset > 0)) return std::nullopt;
  const double highest = rounded(mask->highest * factor->offset, dtype);
  if (!(highest <= kHidden)) return std::nullopt;
  return Mask{.seen = align(mask->seen, rank), .highest = highest};
}

std::optional<Form> of_masks(const Node& node, const Form& a, const Form& b, size_t rank) {
  if (node.is("add")) return added_masks(a, b, rank);
  if (node.is("mul")) return scaled_mask(a, b, rank, node.output()->type().dtype);
  return std::nullopt;
}

// The form on the axes of a result of `rank`.
Form widened(const Form& form, size_t rank) {
  const size_t own = rank_of(form);
  std::vector<Affine> at;
  for (size_t axis = 0; axis < own; ++axis) at.push_back(index_form(rank, rank - own + axis));
  return substitute(form, at, rank);
}

// One branch hides everything: the other's mask where the condition chooses it.
std::optional<Form> chosen_mask(const Form& condition, const Form& yes, const Form& no, size_t rank) {
  const std::optional<Mask> of_yes = as_mask(yes);
  const std::optional<Mask> of_no = as_mask(no);
  if (!of_yes || !of_no || (!of_yes->seen.never() && !of_no->seen.never())) return std::nullopt;
  const bool seen_where = of_no->seen.never();
  const std::optional<Region> chosen = where_it_is(condition, seen_where);
  if (!chosen) return std::nullopt;
  const Region& seen = (seen_where ? of_yes : of_no)->seen;
  return Mask{.seen = both(*chosen, seen, rank), .highest = std::max(of_yes->highest, of_no->highest)};
}

}  // namespace

std::optional<Form> IndexForms::unary(const Node& node) {
  const auto function = unary_functions().find(node.op_name());
  if (function == unary_functions().end()) return std::nullopt;
  const std::optional<Form> x = evaluate(node.input(0));
  if (!x) return std::nullopt;
  const DType to = node.output()->type().dtype;
  if (const std::optional<Choice> choice = as_choice(*x)) {
    return mapped(*choice, [&](double number) { return rounded(function->second(number), to); });
  }
  const Affine* positions = std::get_if<Affine>(&*x);
  if (node.is("neg") && positions != nullptr) return scaled(*positions, -1);
  if (!node.is("cast")) return std::nullopt;
  if (positions != nullptr) return cast_positions(*positions, to);
  if (const Element* element = std::get_if<Element>(&*x)) {
    return cast_element(*element, node.input(0)->type().dtype, to);
  }
  Mask mask = std::get<Mask>(*x);
  mask.highest = rounded(mask.highest, to);
  return is_float(to) ? std::optional<Form>(mask) : std::nullopt;
}

std::optional<Form> IndexForms::binary(const Node& node) {
  const auto function = binary_functions().find(node.op_name());
  if (function == binary_functions().end()) return std::nullopt;
  const std::optional<Form> a = evaluate(node.input(0));
  const std::optional<Form> b = evaluate(node.input(1));
  if (!a || !b) return std::nullopt;
  const size_t rank = node.output()->shape().size();
  const std::optional<Choice> left = as_choice(*a);
  const std::optional<Choice> right = as_choice(*b);
  if (left && right) {
    const DType dtype = node.output()->type().dtype;
    const auto value = [&](double x, double y) { return rounded(function->second(x, y), dtype); };
    std::optional<Form> result = mapped(*left, *right, rank, value);
    if (result || (left->holds.always() && right->holds.always())) return result;
  }
  const Affine* i = std::get_if<Affine>(&*a);
  const Affine* j = std::get_if<Affine>(&*b);
  if (i != nullptr && j != nullptr) return of_positions(node, *i, *j, rank);
  const Element* x = std::get_if<Element>(&*a);
  const Element* y = std::get_if<Element>(&*b);
  if (x != nullptr && y != nullptr) return related(node, *x, *y, rank);
  if (x != nullptr || y != nullptr) return moved(node, *a, *b, rank);
  return of_masks(node, *a, *b, rank);
}

// Of two numbers again, or a mask.
std::optional<Form> IndexForms::where(const Node& node) {
  const std::optional<Form> condition = evaluate(node.input(0));
  const std::optional<Form> yes = evaluate(node.input(1));
  const std::optional<Form> no = evaluate(node.input(2));
  const std::optional<Choice> choice = condition ? as_choice(*condition) : std::nullopt;
  if (!choice || !yes || !no) return std::nullopt;
  const size_t rank = node.output()->shape().size();
  if (choice->holds.always()) return widened(choice->yes != 0 ? *yes : *no, rank);
  const std::optional<Choice> of_yes = as_choice(*yes);
  const std::optional<Choice> of_no = as_choice(*no);
  std::optional<Form> result;
  if (of_yes && of_no && of_no->holds.always()) {
    result = mapped(*choice, *of_yes, rank, [&](double c, double x) { return c != 0 ? x : of_no->yes; });
  } else if (of_yes && of_no && of_yes->holds.always()) {
    result = mapped(*choice, *of_no, rank, [&](double c, double x) { return c != 0 ? of_yes->yes : x; });
  }
  return result ? result : chosen_mask(*condition, *yes, *no, rank);
}

}  // namespace atb
