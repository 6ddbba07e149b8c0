// SPDX-License-Identifier: Apache-2.0
// Views, pieces and lookups: the indices of the result as forms of those of the operand.
#include "passes/analysis/index_forms.h"

namespace atb {
namespace {

size_t rank_of(const Value& value) { return value.shape().size(); }

size_t axis_of(const Node& node, const Value& value) {
  const int64_t axis = node.attrs().integer("axis");
  return static_cast<size_t>(axis < 0 ? axis + value.rank() : axis);
}

}  // namespace

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

// table[i]: take with the operands the other way round.
std::optional<Form> IndexForms::embedding(const Node& node) {
  const std::optional<Form> table = evaluate(node.input(1));
  const std::optional<Affine> index = table ? affine(node.input(0)) : std::nullopt;
  if (!index || !index->integral() || !index->never_negative()) return std::nullopt;
  const size_t rank = rank_of(*node.output());
  Affine row = align(*index, rank - 1);
  row.coefficients.push_back(0.0);
  return substitute(*table, {std::move(row), index_form(rank, rank - 1)}, rank);
}

// Of one number: n, 2 n, 3 n, ....
std::optional<Form> IndexForms::cumsum(const Node& node) {
  const std::optional<Affine> input = affine(node.input(0));
  if (!input || !input->constant()) return std::nullopt;
  Affine result = *input;
  result.coefficients[axis_of(node, *node.output())] = input->offset;
  return result;
}

}  // namespace atb
