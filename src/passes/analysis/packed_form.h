// SPDX-License-Identifier: Apache-2.0
// Packed sequences in a condition: which values number them, and what positions counted anew in each say.
#pragma once

#include <optional>
#include <vector>

#include "passes/analysis/index_forms.h"

namespace atb {

// The condition of a mask [..., T, S]: "of the same sequence" by each element of `segments`, taken at the query; the
// rest are conditions on the indices.
struct PackedForm {
  std::vector<Element> segments;
  std::vector<Affine> at_most_zero;
};

// Takes the relations of a region apart; nothing where one of them is neither "of the same sequence" nor a comparison
// of positions that count up by 1 in each of those sequences.
std::optional<PackedForm> packed_form(const Region& region, IndexForms& forms);

}  // namespace atb
