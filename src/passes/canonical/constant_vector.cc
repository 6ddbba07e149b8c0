// SPDX-License-Identifier: Apache-2.0
// Normal form: scalars and vectors that depend on constants alone are constants, so that chains see them as weights.
// Matrices stay computed here: a transpose or cast of a weight is looked through, and the weight stays tied and whole.
#include <algorithm>

#include "passes/canonical/canonical.h"
#include "passes/fold_constants.h"

namespace atb {

bool constant_vector(const Node& node, Rewriter& rewriter) {
  const auto is_small = [](const Value* value) { return value->rank() <= 1; };
  return std::all_of(node.outputs().begin(), node.outputs().end(), is_small) && fold_node(node, rewriter);
}

}  // namespace atb
