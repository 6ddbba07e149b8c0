// SPDX-License-Identifier: Apache-2.0
// Arithmetic of affine forms.
#include "passes/analysis/affine.h"

#include <algorithm>
#include <cmath>

namespace atb {

bool Affine::constant() const {
  return std::all_of(coefficients.begin(), coefficients.end(), [](double c) { return c == 0; });
}

bool Affine::integral() const {
  return std::floor(offset) == offset &&
         std::all_of(coefficients.begin(), coefficients.end(), [](double c) { return std::floor(c) == c; });
}

bool Affine::never_negative() const {
  return offset >= 0 && std::all_of(coefficients.begin(), coefficients.end(), [](double c) { return c >= 0; });
}

Affine constant_form(size_t rank, double number) {
  return {.coefficients = std::vector<double>(rank), .offset = number};
}

Affine index_form(size_t rank, size_t axis) {
  Affine form = constant_form(rank, 0);
  form.coefficients[axis] = 1;
  return form;
}

Affine align(const Affine& form, size_t rank) {
  Affine result = form;
  result.coefficients.insert(result.coefficients.begin(), rank - form.rank(), 0.0);
  return result;
}

Affine combine(const Affine& a, const Affine& b, double sign, size_t rank) {
  Affine result = align(a, rank);
  const Affine other = align(b, rank);
  for (size_t i = 0; i < rank; ++i) result.coefficients[i] += sign * other.coefficients[i];
  result.offset += sign * other.offset;
  return result;
}

Affine scaled(const Affine& form, double factor) {
  Affine result = form;
  for (double& c : result.coefficients) c *= factor;
  result.offset *= factor;
  return result;
}

Affine substitute(const Affine& form, const std::vector<Affine>& at, size_t rank) {
  Affine result = constant_form(rank, form.offset);
  for (size_t axis = 0; axis < form.rank(); ++axis) {
    if (form.depends_on(axis)) result = combine(result, scaled(at[axis], form.coefficients[axis]), 1, rank);
  }
  return result;
}

}  // namespace atb
