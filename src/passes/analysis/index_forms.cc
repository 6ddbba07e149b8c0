// SPDX-License-Identifier: Apache-2.0
// Symbolic evaluation by one rule an operator.
#include "passes/analysis/index_forms.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace atb {
namespace {

Element align(Element element, size_t rank) {
  element.rank = rank;
  for (Affine& at : element.at) at = align(at, rank);
  return element;
}

Region align(const Region& region, size_t rank) {
  Region result{.rank = rank, .at_most_zero = {}, .reads = region.reads, .relations = region.relations};
  for (const Affine& form : region.at_most_zero) result.at_most_zero.push_back(align(form, rank));
  for (Read& read : result.reads) {
    for (Affine& at : read.at) at = align(at, rank);
  }
  for (Relation& relation : result.relations) {
    relation.a = align(relation.a, rank);
    relation.b = align(relation.b, rank);
  }
  return result;
}

// Conditions that do not depend on indices are decided.
Region simplified(Region region) {
  const auto holds = [](const Affine& form) { return form.constant() && form.offset <= 0; };
  const auto fails = [](const Affine& form) { return form.constant() && form.offset > 0; };
  std::vector<Affine>& forms = region.at_most_zero;
  if (std::any_of(forms.begin(), forms.end(), fails)) return nowhere(region.rank);
  forms.erase(std::remove_if(forms.begin(), forms.end(), holds), forms.end());
  return region;
}

// The form with its axes replaced by forms over `rank` other axes.
Element substitute(Element element, const std::vector<Affine>& at, size_t rank) {
  element.rank = rank;
  for (Affine& index : element.at) index = substitute(index, at, rank);
  return element;
}

Form substitute(const Form& form, const std::vector<Affine>& at, size_t rank) {
  const auto region = [&](const Region& r) {
    Region result{.rank = rank, .at_most_zero = {}, .reads = r.reads, .relations = r.relations};
    for (const Affine& f : r.at_most_zero) result.at_most_zero.push_back(substitute(f, at, rank));
    for (Read& read : result.reads) {
      for (Affine& index : read.at) index = substitute(index, at, rank);
    }
    for (Relation& relation : result.relations) {
      relation.a = substitute(relation.a, at, rank);
      relation.b = substitute(relation.b, at, rank);
    }
    return simplified(std::move(result));
  };
  if (const Affine* affine = std::get_if<Affine>(&form)) return substitute(*affine, at, rank);
  if (const Element* element = std::get_if<Element>(&form)) return substitute(*element, at, rank);
  if (const Region* r = std::get_if<Region>(&form)) return region(*r);
  const Mask& mask = std::get<Mask>(form);
  return Mask{.seen = region(mask.seen), .infinite = mask.infinite};
}

bool depends_on(const std::vector<Affine>& forms, size_t axis) {
  return std::any_of(forms.begin(), forms.end(), [axis](const Affine& form) { return form.depends_on(axis); });
}

bool depends_on(const Region& region, size_t axis) {
  return depends_on(region.at_most_zero, axis) ||
         std::any_of(region.reads.begin(), region.reads.end(),
                     [&](const Read& read) { return depends_on(read.at, axis); }) ||
         std::any_of(region.relations.begin(), region.relations.end(), [&](const Relation& relation) {
           return depends_on(relation.a.at, axis) || depends_on(relation.b.at, axis);
         });
}

bool depends_on(const Form& form, size_t axis) {
  if (const Affine* affine = std::get_if<Affine>(&form)) return affine->depends_on(axis);
  if (const Element* element = std::get_if<Element>(&form)) return depends_on(element->at, axis);
  if (const Region* region = std::get_if<Region>(&form)) return depends_on(*region, axis);
  return depends_on(std::get<Mask>(form).seen, axis);
}

size_t rank_of(const Form& form) {
  if (const Affine* affine = std::get_if<Affine>(&form)) return affine->rank();
  if (const Element* element = std::get_if<Element>(&form)) return element->rank;
  if (const Region* region = std::get_if<Region>(&form)) return region->rank;
  return std::get<Mask>(form).seen.rank;
}

std::optional<Affine> as_affine(const std::optional<Form>& form) {
  if (!form) return std::nullopt;
  if (const Affine* affine = std::get_if<Affine>(&*form)) return *affine;
  const Region* region = std::get_if<Region>(&*form);
  if (region == nullptr || !(region->always() || region->never())) return std::nullopt;
  return constant_form(region->rank, region->always() ? 1 : 0);
}

size_t rank_of(const Value& value) { return value.shape().size(); }

bool is_wide(DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; }
bool is_integer(DType dtype) { return is_wide(dtype) || dtype == DType::kI8 || dtype == DType::kU8; }

// An element plus or minus a number.
std::optional<Element> moved_element(const Node& node, const Form& a, const Form& b) {
  const bool swapped = node.is("add") && std::holds_alternative<Element>(b);
  const Element* element = std::get_if<Element>(swapped ? &b : &a);
  const std::optional<Affine> number = as_affine(swapped ? a : b);
  if (element == nullptr || !number || !number->constant() || !number->integral()) return std::nullopt;
  if ((!node.is("add") && !node.is("sub")) || !is_wide(node.output()->type().dtype)) return std::nullopt;
  Element result = align(*element, rank_of(*node.output()));
  result.offset += node.is("sub") ? -number->offset : number->offset;
  return result;
}

size_t axis_of(const Node& node, const Value& value) {
  const int64_t axis = node.attrs().integer("axis");
  return static_cast<size_t>(axis < 0 ? axis + value.rank() : axis);
}

// A square constant of 0 and 1 that is 1 on and below the diagonal (or above it) is a condition on its last two axes.
std::optional<Form> triangle(const Value& value) {
  const size_t rank = rank_of(value);
  const Constant& constant = *value.constant();
  if (rank < 2) return std::nullopt;
  const int64_t size = constant.shape().back();
  if (constant.shape()[rank - 2] != size || constant.num_rows() != size || size < 2 || size > 4096) return std::nullopt;
  const std::vector<float> data = constant.to_f32();
  const auto is_triangle = [&](bool lower) {
    for (int64_t q = 0; q < size; ++q) {
      for (int64_t k = 0; k < size; ++k) {
        if (data[static_cast<size_t>(q * size + k)] != ((lower ? k <= q : k > q) ? 1.0F : 0.0F)) return false;
      }
    }
    return true;
  };
  const Affine ahead = combine(index_form(rank, rank - 1), index_form(rank, rank - 2), -1, rank);  // k - q
  if (is_triangle(true)) return Region{.rank = rank, .at_most_zero = {ahead}, .reads = {}};
  if (!is_triangle(false)) return std::nullopt;
  Affine behind = scaled(ahead, -1);
  behind.offset += 1;
  return Region{.rank = rank, .at_most_zero = {behind}, .reads = {}};
}

// An integer, exact in a type that positions are cast to.
bool keeps_integers(DType dtype) { return dtype != DType::kF16 && dtype != DType::kBF16 && dtype != DType::kI8; }

// Each element is at an axis that the other is not at: a query and a key, say.
bool at_two_positions(const Relation& relation) {
  bool first = false;
  bool second = false;
  for (size_t axis = 0; axis < relation.a.rank; ++axis) {
    const bool a = depends_on(relation.a.at, axis);
    const bool b = depends_on(relation.b.at, axis);
    first = first || (a && !b);
    second = second || (b && !a);
  }
  return first && second;
}

}  // namespace

bool Region::never() const {
  return reads.empty() && relations.empty() && at_most_zero.size() == 1 && at_most_zero[0].constant() &&
         at_most_zero[0].offset > 0;
}

Region everywhere(size_t rank) { return {.rank = rank, .at_most_zero = {}, .reads = {}}; }
Region nowhere(size_t rank) { return {.rank = rank, .at_most_zero = {constant_form(rank, 1)}, .reads = {}}; }

Region both(const Region& a, const Region& b, size_t rank) {
  Region result = align(a, rank);
  const Region other = align(b, rank);
  result.at_most_zero.insert(result.at_most_zero.end(), other.at_most_zero.begin(), other.at_most_zero.end());
  result.reads.insert(result.reads.end(), other.reads.begin(), other.reads.end());
  result.relations.insert(result.relations.end(), other.relations.begin(), other.relations.end());
  return simplified(std::move(result));
}

Relation complement(Relation relation) {
  using Kind = Relation::Kind;
  if (relation.kind == Kind::kAtMost) {  // not (a <= b) is b + 1 <= a
    std::swap(relation.a, relation.b);
    relation.a.offset += 1;
  } else {
    relation.kind = relation.kind == Kind::kEqual ? Kind::kUnequal : Kind::kEqual;
  }
  return relation;
}

std::optional<Region> complement(const Region& region) {
  if (region.always()) return nowhere(region.rank);
  if (region.never()) return everywhere(region.rank);
  if (region.at_most_zero.size() + region.reads.size() + region.relations.size() != 1) return std::nullopt;
  Region result = region;
  if (!result.relations.empty()) {
    result.relations[0] = complement(result.relations[0]);
    return result;
  }
  if (!result.reads.empty()) {
    result.reads[0].negated = !result.reads[0].negated;
    return result;
  }
  Affine& form = result.at_most_zero[0];
  if (!form.integral()) return std::nullopt;
  form = scaled(form, -1);  // not (f <= 0) is 1 - f <= 0
  form.offset += 1;
  return result;
}

std::optional<Mask> as_mask(const Form& form) {
  if (const Mask* mask = std::get_if<Mask>(&form)) return *mask;
  const Affine* value = std::get_if<Affine>(&form);
  if (value == nullptr || !value->constant()) return std::nullopt;
  if (value->offset == 0) return Mask{.seen = everywhere(value->rank()), .infinite = true};
  if (value->offset <= kBlocked) return Mask{.seen = nowhere(value->rank()), .infinite = std::isinf(value->offset)};
  return std::nullopt;
}

void IndexForms::note(const std::string& what) {
  if (why_.empty()) why_ = what;
}

std::optional<Affine> IndexForms::affine(const Value* value) { return as_affine(evaluate(value)); }

std::optional<Form> IndexForms::evaluate(const Value* value) {
  const auto known = forms_.find(value);
  if (known != forms_.end()) return known->second;
  std::optional<Form> form;
  if (++visited_ > kMaxVisited || depth_ > kMaxDepth) {
    note("too many operators");
  } else {
    ++depth_;
    if (value->is_constant()) {
      form = constant(*value);
    } else if (value->producer() != nullptr) {
      form = operation(*value->producer());
    }
    --depth_;
  }
  if (!form) form = opaque(*value);
  if (!form) {
    note((value->producer() == nullptr ? std::string("%") : value->producer()->op_name() + " %") + value->name());
  }
  forms_.emplace(value, form);
  return form;
}

std::optional<Form> IndexForms::opaque(const Value& value) {
  const size_t rank = rank_of(value);
  const DType dtype = value.type().dtype;
  if (dtype != DType::kBool && !is_integer(dtype)) return std::nullopt;
  std::vector<Affine> at;
  for (size_t axis = 0; axis < rank; ++axis) at.push_back(index_form(rank, axis));
  if (dtype != DType::kBool) return Element{.rank = rank, .source = &value, .at = std::move(at)};
  Read read{.source = &value, .at = std::move(at), .negated = false};
  return Region{.rank = rank, .at_most_zero = {}, .reads = {std::move(read)}};
}

std::optional<Form> IndexForms::constant(const Value& value) {
  if (value.constant()->absent() || value.type().encoding != nullptr) return std::nullopt;
  if (!(num_elements(value.shape()) == Dim(1))) return triangle(value);
  const double number = value.constant()->to_f32()[0];
  if (value.type().dtype == DType::kBool) return number != 0 ? everywhere(rank_of(value)) : nowhere(rank_of(value));
  return constant_form(rank_of(value), number);
}

std::optional<Form> IndexForms::operation(const Node& node) {
  if (node.is("iota")) return index_form(1, 0);
  if (node.is("reshape")) return reshape(node);
  if (node.is("transpose")) return transpose(node);
  if (node.is("broadcast")) return broadcast(node);
  if (node.is("slice")) return slice(node);
  if (node.is("concat")) return concat(node);
  if (node.is("take")) return take(node);
  if (node.is("cumsum")) return cumsum(node);
  if (node.is("cast")) return cast(node);
  if (node.is("where")) return where(node);
  if (node.is("less_equal") || node.is("less")) return compare(node);
  if (node.is("equal")) return equal(node);
  if (node.is("logical_and") || node.is("logical_or") || node.is("logical_not")) return logic(node);
  if (node.is("add") || node.is("sub") || node.is("mul") || node.is("neg")) return arithmetic(node);
  return std::nullopt;
}

// Only reshapes that insert or drop unit axes keep indices as they are; a constant keeps its number under any.
std::optional<Form> IndexForms::reshape(const Node& node) {
  const std::optional<Form> input = evaluate(node.input(0));
  if (!input) return std::nullopt;
  const Shape& before = node.input(0)->shape();
  const Shape& after = node.output()->shape();
  if (const std::optional<Affine> number = as_affine(input); number && number->constant()) {
    return substitute(*input, std::vector<Affine>(before.size()), after.size());
  }
  std::vector<Affine> at(before.size(), constant_form(after.size(), 0));
  size_t axis = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    if (after[i] == Dim(1)) continue;
    while (axis < before.size() && before[axis] == Dim(1)) ++axis;
    if (axis == before.size() || !(before[axis] == after[i])) return std::nullopt;
    at[axis++] = index_form(after.size(), i);
  }
  while (axis < before.size() && before[axis] == Dim(1)) ++axis;
  if (axis != before.size()) return std::nullopt;
  return substitute(*input, at, after.size());
}

std::optional<Form> IndexForms::transpose(const Node& node) {
  const std::optional<Form> input = evaluate(node.input(0));
  if (!input) return std::nullopt;
  const auto& perm = node.attrs().get<std::vector<int64_t>>("perm");
  std::vector<Affine> at(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) at[static_cast<size_t>(perm[i])] = index_form(perm.size(), i);
  return substitute(*input, at, perm.size());
}

std::optional<Form> IndexForms::broadcast(const Node& node) {
  const std::optional<Form> input = evaluate(node.input(0));
  if (!input) return std::nullopt;
  const Shape& from = node.input(0)->shape();
  const size_t rank = rank_of(*node.output());
  std::vector<Affine> at;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    at.push_back(from[axis] == Dim(1) ? constant_form(rank, 0) : index_form(rank, rank - from.size() + axis));
  }
  return substitute(*input, at, rank);
}

std::optional<Form> IndexForms::slice(const Node& node) {
  const std::optional<Form> input = evaluate(node.input(0));
  if (!input) return std::nullopt;
  const size_t rank = rank_of(*node.output());
  const size_t sliced = axis_of(node, *node.output());
  std::vector<Affine> at;
  for (size_t axis = 0; axis < rank; ++axis) at.push_back(index_form(rank, axis));
  if (depends_on(*input, sliced)) {
    if (std::holds_alternative<Element>(*input)) return std::nullopt;  // is a source itself
    const Dim& begin = node.attrs().get<Shape>("bounds").at(0);
    if (!begin.is_constant()) return std::nullopt;
    at[sliced] = scaled(at[sliced], static_cast<double>(node.attrs().integer("step")));
    at[sliced].offset = static_cast<double>(begin.constant());
  }
  return substitute(*input, at, rank);
}

// Pieces that continue each other: each is the form of one of them at its own place.
std::optional<Form> IndexForms::concat(const Node& node) {
  const size_t joined = axis_of(node, *node.output());
  const size_t rank = rank_of(*node.output());
  std::vector<Affine> pieces;
  std::vector<double> starts;
  std::optional<size_t> base;  // a piece whose extent is not 1 says how the form grows
  Dim start = 0;
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    const std::optional<Affine> piece = affine(node.input(i));
    if (!piece || !start.is_constant()) return std::nullopt;
    pieces.push_back(*piece);
    starts.push_back(static_cast<double>(start.constant()));
    const Dim& extent = node.input(i)->shape()[joined];
    if (!base && !(extent == Dim(1))) base = i;
    start = start + extent;
  }
  if (!base) return std::nullopt;
  const auto shifted = [&](size_t i) {  // the piece's form by the index of the whole
    Affine form = pieces[i];
    form.offset -= form.coefficients[joined] * starts[i];
    return form;
  };
  const Affine whole = shifted(*base);
  for (size_t i = 0; i < pieces.size(); ++i) {
    Affine difference = combine(shifted(i), whole, -1, rank);
    if (node.input(i)->shape()[joined] == Dim(1)) {  // at the one index that it has
      difference.offset += difference.coefficients[joined] * starts[i];
      difference.coefficients[joined] = 0;
    }
    if (!difference.constant() || difference.offset != 0) return std::nullopt;
  }
  return whole;
}

// x[i0, i1, ...]: the indices stand for the leading axes.
std::optional<Form> IndexForms::take(const Node& node) {
  const std::optional<Form> x = evaluate(node.input(0));
  if (!x) return std::nullopt;
  const size_t rank = rank_of(*node.output());
  const size_t from = rank_of(*node.input(0));
  const size_t indices = node.inputs().size() - 1;
  const size_t kept = from - indices;
  std::vector<Affine> at(from, constant_form(rank, 0));
  for (size_t axis = 0; axis < from; ++axis) {
    if (axis >= indices) {
      at[axis] = index_form(rank, rank - from + axis);
      continue;
    }
    if (!depends_on(*x, axis)) continue;
    const std::optional<Affine> index = affine(node.input(1 + axis));
    // Negative ones would count from the end.
    if (!index || !index->integral() || !index->never_negative()) return std::nullopt;
    at[axis] = align(*index, rank - kept);
    at[axis].coefficients.resize(rank, 0.0);
  }
  return substitute(*x, at, rank);
}

// Of one number: n, 2 n, 3 n, ....
std::optional<Form> IndexForms::cumsum(const Node& node) {
  const std::optional<Affine> input = affine(node.input(0));
  if (!input || !input->constant()) return std::nullopt;
  Affine result = *input;
  result.coefficients[axis_of(node, *node.output())] = input->offset;
  return result;
}

std::optional<Form> IndexForms::cast(const Node& node) {
  const std::optional<Form> input = evaluate(node.input(0));
  const DType to = node.output()->type().dtype;
  if (!input) return std::nullopt;
  if (const Affine* number = std::get_if<Affine>(&*input)) {
    if (to == DType::kBool) {
      if (!number->constant()) return std::nullopt;
      return number->offset != 0 ? everywhere(number->rank()) : nowhere(number->rank());
    }
    const bool exact = number->constant() && std::abs(number->offset) <= 256;
    if (number->integral() && (exact || keeps_integers(to))) return input;
    if (number->constant() && number->offset == -std::numeric_limits<double>::infinity() && is_float(to)) return input;
    return std::nullopt;
  }
  if (std::holds_alternative<Region>(*input)) return input;
  if (std::holds_alternative<Element>(*input)) {
    const bool widened = to == DType::kI64 || (to == DType::kI32 && node.input(0)->type().dtype != DType::kI64);
    return widened ? input : std::nullopt;
  }
  Mask mask = std::get<Mask>(*input);
  if (!is_float(to)) return std::nullopt;
  return mask;
}

std::optional<Region> IndexForms::region(const Value* value) {
  const std::optional<Form> form = evaluate(value);
  if (!form) return std::nullopt;
  if (const Region* region = std::get_if<Region>(&*form)) return *region;
  const std::optional<Affine> number = as_affine(form);  // logic on numbers
  if (!number || !number->constant()) return std::nullopt;
  return number->offset != 0 ? everywhere(number->rank()) : nowhere(number->rank());
}

std::optional<Form> IndexForms::compare(const Node& node) {
  const std::optional<Affine> a = affine(node.input(0));
  const std::optional<Affine> b = affine(node.input(1));
  if (!a && !b) return relate(node, Relation::Kind::kAtMost);
  if (!a || !b) return std::nullopt;
  const size_t rank = rank_of(*node.output());
  Affine difference = combine(*a, *b, -1, rank);
  if (node.is("less")) {
    if (!difference.integral()) return std::nullopt;
    difference.offset += 1;
  }
  return simplified({.rank = rank, .at_most_zero = {difference}, .reads = {}});
}

std::optional<Form> IndexForms::equal(const Node& node) {
  const size_t rank = rank_of(*node.output());
  const std::optional<Affine> a = affine(node.input(0));
  const std::optional<Affine> b = affine(node.input(1));
  if (a && b) {
    const Affine difference = combine(*a, *b, -1, rank);
    return simplified({.rank = rank, .at_most_zero = {difference, scaled(difference, -1)}, .reads = {}});
  }
  if (!a && !b) return relate(node, Relation::Kind::kEqual);
  // A condition compared with 0 or 1.
  const std::optional<Affine>& number = a ? a : b;
  const std::optional<Form> other = evaluate(node.input(a ? 1 : 0));
  const Region* region = other ? std::get_if<Region>(&*other) : nullptr;
  if (!number || !number->constant() || region == nullptr) return std::nullopt;
  if (number->offset == 1) return align(*region, rank);
  if (number->offset != 0) return nowhere(rank);
  const std::optional<Region> fails = complement(align(*region, rank));
  if (!fails) return std::nullopt;
  return *fails;
}

std::optional<Form> IndexForms::relate(const Node& node, Relation::Kind kind) {
  const std::optional<Form> first = evaluate(node.input(0));
  const std::optional<Form> second = evaluate(node.input(1));
  const Element* a = first ? std::get_if<Element>(&*first) : nullptr;
  const Element* b = second ? std::get_if<Element>(&*second) : nullptr;
  if (a == nullptr || b == nullptr || a->source != b->source) return std::nullopt;
  const size_t rank = rank_of(*node.output());
  Relation relation{.kind = kind, .a = align(*a, rank), .b = align(*b, rank)};
  if (node.is("less")) relation.a.offset += 1;
  if (!at_two_positions(relation)) return std::nullopt;
  return Region{.rank = rank, .at_most_zero = {}, .reads = {}, .relations = {std::move(relation)}};
}

std::optional<Form> IndexForms::logic(const Node& node) {
  const size_t rank = rank_of(*node.output());
  const std::optional<Region> a = region(node.input(0));
  if (!a) return std::nullopt;
  if (node.is("logical_not")) {
    const std::optional<Region> fails = complement(*a);
    if (!fails) return std::nullopt;
    return *fails;
  }
  const std::optional<Region> b = region(node.input(1));
  if (!b) return std::nullopt;
  if (node.is("logical_and")) return both(*a, *b, rank);
  if (a->always() || b->always()) return everywhere(rank);
  if (a->never()) return align(*b, rank);
  if (b->never()) return align(*a, rank);
  return std::nullopt;
}

// where(c, seen, blocked) and the reverse; both branches may be masks themselves.
std::optional<Form> IndexForms::where(const Node& node) {
  const std::optional<Region> holds = region(node.input(0));
  const std::optional<Form> yes = evaluate(node.input(1));
  const std::optional<Form> no = evaluate(node.input(2));
  if (!holds || !yes || !no) return std::nullopt;
  const size_t rank = rank_of(*node.output());
  const auto widened = [&](const Form& form) {
    const size_t own = rank_of(form);
    std::vector<Affine> at;
    for (size_t axis = 0; axis < own; ++axis) at.push_back(index_form(rank, rank - own + axis));
    return substitute(form, at, rank);
  };
  if (holds->always()) return widened(*yes);
  if (holds->never()) return widened(*no);
  const std::optional<Mask> seen_yes = as_mask(*yes);
  const std::optional<Mask> seen_no = as_mask(*no);
  if (!seen_yes || !seen_no) return std::nullopt;
  const bool infinite = seen_yes->infinite && seen_no->infinite;
  if (seen_no->seen.never()) return Mask{.seen = both(*holds, seen_yes->seen, rank), .infinite = infinite};
  const std::optional<Region> fails = complement(*holds);
  if (!fails || !seen_yes->seen.never()) return std::nullopt;
  return Mask{.seen = both(*fails, seen_no->seen, rank), .infinite = infinite};
}

std::optional<Form> IndexForms::add_masks(const Form& a, const Form& b, size_t rank) {
  const std::optional<Mask> first = as_mask(a);
  const std::optional<Mask> second = as_mask(b);
  if (!first || !second) return std::nullopt;
  // 0 + 0 sees, anything else is blocked.
  return Mask{.seen = both(first->seen, second->seen, rank), .infinite = first->infinite && second->infinite};
}

std::optional<Form> IndexForms::arithmetic(const Node& node) {
  const std::optional<Form> a = evaluate(node.input(0));
  const std::optional<Affine> left = as_affine(a);
  if (node.is("neg")) return left ? std::optional<Form>(scaled(*left, -1)) : std::nullopt;
  const std::optional<Form> b = evaluate(node.input(1));
  const std::optional<Affine> right = as_affine(b);
  if (!a || !b) return std::nullopt;
  const size_t rank = rank_of(*node.output());
  if (node.is("add") && (std::holds_alternative<Mask>(*a) || std::holds_alternative<Mask>(*b))) {
    return add_masks(*a, *b, rank);
  }
  if (const std::optional<Element> moved = moved_element(node, *a, *b)) return *moved;
  if (!left || !right || !std::isfinite(left->offset) || !std::isfinite(right->offset)) return std::nullopt;
  if (!node.is("mul")) return combine(*left, *right, node.is("sub") ? -1 : 1, rank);
  if (right->constant()) return align(scaled(*left, right->offset), rank);
  if (left->constant()) return align(scaled(*right, left->offset), rank);
  return std::nullopt;
}

}  // namespace atb
