// SPDX-License-Identifier: Apache-2.0
// Affine forms of the indices of a value: what positions, index arithmetic and their slices are made of.
#pragma once

#include <cstddef>
#include <vector>

namespace atb {

// offset + sum coefficients[a] * index[a] over the axes of a value.
struct Affine {
  std::vector<double> coefficients;
  double offset = 0;

  size_t rank() const { return coefficients.size(); }
  bool constant() const;        // every coefficient is 0
  bool integral() const;        // coefficients and offset are integers
  bool never_negative() const;  // proven for all indices >= 0
  bool depends_on(size_t axis) const { return coefficients[axis] != 0; }
  friend bool operator==(const Affine&, const Affine&) = default;
};

Affine constant_form(size_t rank, double number);
// index[axis]
Affine index_form(size_t rank, size_t axis);

// The form on more axes; numpy broadcasting: axes match from the right.
Affine align(const Affine& form, size_t rank);
// a + sign * b on `rank` axes.
Affine combine(const Affine& a, const Affine& b, double sign, size_t rank);
Affine scaled(const Affine& form, double factor);
// The form with index[a] replaced by at[a], forms over other axes (all of `rank`).
Affine substitute(const Affine& form, const std::vector<Affine>& at, size_t rank);

}  // namespace atb
