// SPDX-License-Identifier: Apache-2.0
// Conditions, choices and masks under other indices.
#include "passes/analysis/forms.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace atb {
namespace {

// Applies `change` to every affine form in a region of `rank` axes.
template <class Change>
Region changed(Region region, size_t rank, const Change& change) {
  const auto change_all = [&](std::vector<Affine>& forms) {
    for (Affine& form : forms) form = change(form);
  };
  region.rank = rank;
  change_all(region.at_most_zero);
  for (Read& read : region.reads) change_all(read.at);
  for (Relation& relation : region.relations) {
    relation.a.rank = relation.b.rank = rank;
    change_all(relation.a.at);
    change_all(relation.b.at);
  }
  return region;
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

}  // namespace

bool Region::never() const {
  return reads.empty() && relations.empty() && at_most_zero.size() == 1 && at_most_zero[0].constant() &&
         at_most_zero[0].offset > 0;
}

bool Mask::infinite() const { return std::isinf(highest); }

Region everywhere(size_t rank) { return {.rank = rank, .at_most_zero = {}, .reads = {}}; }
Region nowhere(size_t rank) { return {.rank = rank, .at_most_zero = {constant_form(rank, 1)}, .reads = {}}; }

Region simplified(Region region) {
  const auto holds = [](const Affine& form) { return form.constant() && form.offset <= 0; };
  const auto fails = [](const Affine& form) { return form.constant() && form.offset > 0; };
  std::vector<Affine>& forms = region.at_most_zero;
  if (std::any_of(forms.begin(), forms.end(), fails)) return nowhere(region.rank);
  forms.erase(std::remove_if(forms.begin(), forms.end(), holds), forms.end());
  return region;
}

Element align(Element element, size_t rank) {
  element.rank = rank;
  for (Affine& at : element.at) at = align(at, rank);
  return element;
}

Region align(const Region& region, size_t rank) {
  return changed(region, rank, [rank](const Affine& form) { return align(form, rank); });
}

Region both(const Region& a, const Region& b, size_t rank) {
  Region result = align(a, rank);
  const Region other = align(b, rank);
  result.at_most_zero.insert(result.at_most_zero.end(), other.at_most_zero.begin(), other.at_most_zero.end());
  result.reads.insert(result.reads.end(), other.reads.begin(), other.reads.end());
  result.relations.insert(result.relations.end(), other.relations.begin(), other.relations.end());
  return simplified(std::move(result));
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

Form made(Choice choice) {
  const size_t rank = choice.holds.rank;
  if (choice.holds.always() || choice.yes == choice.no) return constant_form(rank, choice.yes);
  if (choice.holds.never()) return constant_form(rank, choice.no);
  return choice;
}

std::optional<Choice> as_choice(const Form& form) {
  if (const Choice* choice = std::get_if<Choice>(&form)) return *choice;
  const Affine* number = std::get_if<Affine>(&form);
  if (number == nullptr || !number->constant()) return std::nullopt;
  return Choice{.holds = everywhere(number->rank()), .yes = number->offset, .no = number->offset};
}

std::optional<Region> where_it_is(const Form& form, bool truth) {
  const std::optional<Choice> choice = as_choice(form);
  if (!choice) return std::nullopt;
  const bool yes = (choice->yes != 0) == truth;
  const bool no = (choice->no != 0) == truth;
  if (yes == no) return yes ? everywhere(choice->holds.rank) : nowhere(choice->holds.rank);
  return yes ? std::optional(choice->holds) : complement(choice->holds);
}

std::optional<Mask> as_mask(const Form& form) {
  if (const Mask* mask = std::get_if<Mask>(&form)) return *mask;
  const std::optional<Choice> choice = as_choice(form);
  if (!choice) return std::nullopt;
  const auto [holds, yes, no] = *choice;
  const auto shows = [](double number) { return number == 0; };
  const auto hides = [](double number) { return number <= kHidden; };
  if (shows(yes) && shows(no)) {
    return Mask{.seen = everywhere(holds.rank), .highest = -std::numeric_limits<double>::infinity()};
  }
  if (hides(yes) && hides(no)) return Mask{.seen = nowhere(holds.rank), .highest = std::max(yes, no)};
  if (shows(yes) && hides(no)) return Mask{.seen = holds, .highest = no};
  if (!hides(yes) || !shows(no)) return std::nullopt;
  std::optional<Region> seen = complement(holds);
  if (!seen) return std::nullopt;
  return Mask{.seen = *std::move(seen), .highest = yes};
}

std::optional<Affine> as_affine(const std::optional<Form>& form) {
  const Affine* affine = form ? std::get_if<Affine>(&*form) : nullptr;
  return affine != nullptr ? std::optional(*affine) : std::nullopt;
}

size_t rank_of(const Form& form) {
  if (const Affine* affine = std::get_if<Affine>(&form)) return affine->rank();
  if (const Element* element = std::get_if<Element>(&form)) return element->rank;
  if (const Choice* choice = std::get_if<Choice>(&form)) return choice->holds.rank;
  return std::get<Mask>(form).seen.rank;
}

bool depends_on(const Form& form, size_t axis) {
  if (const Affine* affine = std::get_if<Affine>(&form)) return affine->depends_on(axis);
  if (const Element* element = std::get_if<Element>(&form)) return depends_on(element->at, axis);
  if (const Choice* choice = std::get_if<Choice>(&form)) return depends_on(choice->holds, axis);
  return depends_on(std::get<Mask>(form).seen, axis);
}

Form substitute(const Form& form, const std::vector<Affine>& at, size_t rank) {
  const auto region = [&](const Region& r) {
    return simplified(changed(r, rank, [&](const Affine& f) { return substitute(f, at, rank); }));
  };
  if (const Affine* affine = std::get_if<Affine>(&form)) return substitute(*affine, at, rank);
  if (const Element* element = std::get_if<Element>(&form)) {
    Element result = *element;
    result.rank = rank;
    for (Affine& index : result.at) index = substitute(index, at, rank);
    return result;
  }
  if (const Choice* choice = std::get_if<Choice>(&form)) {
    return made({.holds = region(choice->holds), .yes = choice->yes, .no = choice->no});
  }
  const Mask& mask = std::get<Mask>(form);
  return Mask{.seen = region(mask.seen), .highest = mask.highest};
}

}  // namespace atb
