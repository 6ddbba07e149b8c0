// SPDX-License-Identifier: Apache-2.0
// Relations between elements at a query and at a key, and positions that restart with each sequence.
#include "passes/analysis/packed_form.h"

#include <algorithm>

#include "passes/analysis/scalar.h"

namespace atb {
namespace {

// The same element, but for what is added to it.
bool same(const Element& a, const Element& b) { return a.source == b.source && a.at == b.at; }

// The element of a query as that of the key at the same place.
Element at_key(const Element& of_query) {
  Element result = of_query;
  for (Affine& at : result.at) std::swap(at.coefficients[result.rank - 2], at.coefficients[result.rank - 1]);
  return result;
}

bool reads_key(const Element& element) {
  return std::any_of(element.at.begin(), element.at.end(),
                     [&](const Affine& at) { return at.depends_on(element.rank - 1); });
}

// "a == b" of a query and the key at each place: the one of the query.
std::optional<Element> segment_of(const Relation& relation) {
  if (relation.kind != Relation::Kind::kEqual || relation.a.offset != relation.b.offset) return std::nullopt;
  const bool swapped = reads_key(relation.a);
  const Element& query = swapped ? relation.b : relation.a;
  if (!same(at_key(query), swapped ? relation.a : relation.b)) return std::nullopt;
  return query;
}

const Node* producer(const Value* value, const char* op) {
  const Node* node = value->producer();
  return node != nullptr && node->is(op) ? node : nullptr;
}

bool along_last(const Node& node) {
  const int64_t axis = node.attrs().integer("axis");
  return axis == -1 || axis + 1 == node.output()->rank();
}

// concat(one, P) along the last axis of which `value` is the T elements from `begin` on: P.
const Value* shifted_source(const Value* value, int64_t begin) {
  const Node* slice = producer(value, "slice");
  if (slice == nullptr || !along_last(*slice) || slice->attrs().integer("step") != 1) return nullptr;
  const Node* concat = producer(slice->input(0), "concat");
  if (concat == nullptr || !along_last(*concat) || concat->inputs().size() != 2) return nullptr;
  const Value* positions = concat->input(1);
  const bool moved = concat->input(0)->dim(-1) == Dim(1) && slice->attrs().get<Shape>("bounds").at(0) == Dim(begin);
  return moved && value->shape() == positions->shape() ? positions : nullptr;
}

// P of P[t] - P[t - 1], whatever that is at 0.
const Value* differences_of(const Value* value) {
  const Node* sub = producer(value, "sub");
  if (sub == nullptr) return nullptr;
  const Value* before = shifted_source(sub->input(1), 0);
  const bool of_it = before == sub->input(0) || before == shifted_source(sub->input(0), 1);
  return before != nullptr && of_it ? before : nullptr;
}

// P of segments = cumsum(P[t] - P[t - 1] != 1): where two of them are equal, no summand between is 1, so P counts up by
// 1 from the one to the other.
const Value* runs_of(const Value* segments) {
  const Node* cumsum = producer(segments, "cumsum");
  if (cumsum == nullptr || !along_last(*cumsum)) return nullptr;
  const Node* summand = cumsum->input(0)->producer();
  if (summand != nullptr && summand->is("cast")) summand = summand->input(0)->producer();
  if (summand == nullptr || !summand->is("logical_not")) return nullptr;
  const Node* equal = producer(summand->input(0), "equal");
  if (equal == nullptr) return nullptr;
  for (const size_t side : {0, 1}) {
    const std::optional<double> step = scalar_value(equal->input(1 - side));
    if (!step || *step != 1) continue;
    const Value* positions = differences_of(equal->input(side));
    if (positions != nullptr && positions->shape() == segments->shape()) return positions;
  }
  return nullptr;
}

// What P is at the query of `segment`, where P counts up by 1 within the sequences.
std::optional<Element> position_of(const Element& segment, IndexForms& forms) {
  const Value* positions = runs_of(segment.source);
  if (positions == nullptr) return std::nullopt;
  const std::optional<Form> form = forms.evaluate(positions);
  const Element* element = form ? std::get_if<Element>(&*form) : nullptr;
  if (element == nullptr) return std::nullopt;
  Element result = *element;
  result.rank = segment.rank;
  for (Affine& at : result.at) at = substitute(at, segment.at, segment.rank);
  return result;
}

// a <= b of positions: a condition on indices, as both count up by 1.
std::optional<Affine> comparison(const Relation& relation, const Element& at_query) {
  if (relation.kind != Relation::Kind::kAtMost) return std::nullopt;
  const size_t rank = at_query.rank;
  const bool swapped = reads_key(relation.a);
  const Element& query = swapped ? relation.b : relation.a;
  const Element& key = swapped ? relation.a : relation.b;
  if (!same(query, at_query) || !same(key, at_key(at_query))) return std::nullopt;
  Affine result = combine(index_form(rank, rank - 2), index_form(rank, rank - 1), -1, rank);
  if (swapped) result = scaled(result, -1);
  result.offset = relation.a.offset - relation.b.offset;
  return result;
}

std::optional<Affine> comparison(const Relation& relation, const std::vector<Element>& positions) {
  for (const Element& position : positions) {
    if (const std::optional<Affine> found = comparison(relation, position)) return found;
  }
  return std::nullopt;
}

}  // namespace

std::optional<PackedForm> packed_form(const Region& region, IndexForms& forms) {
  PackedForm result{.segments = {}, .at_most_zero = region.at_most_zero};
  if (region.relations.empty()) return result;
  if (region.rank < 2) return std::nullopt;
  std::vector<Element> positions;
  for (const Relation& relation : region.relations) {
    if (relation.kind != Relation::Kind::kEqual) continue;
    const std::optional<Element> segment = segment_of(relation);
    if (!segment) return std::nullopt;
    result.segments.push_back(*segment);
    if (const std::optional<Element> position = position_of(*segment, forms)) positions.push_back(*position);
  }
  for (const Relation& relation : region.relations) {
    if (relation.kind == Relation::Kind::kEqual) continue;
    const std::optional<Affine> found = comparison(relation, positions);
    if (!found) return std::nullopt;
    result.at_most_zero.push_back(*found);
  }
  return result;
}

}  // namespace atb
