// SPDX-License-Identifier: Apache-2.0
// Normal form: the rows of a table for as many positions as there are tokens are an embedding of those positions.
#include "passes/canonical/canonical.h"
#include "passes/canonical/slice_util.h"

namespace atb {

bool leading_rows(const Node& node, Rewriter& rewriter) {
  Value* table = node.input(0);
  const Slice slice = slice_of(node);
  if (!table->is_constant() || table->rank() != 2 || !is_float(table->type().dtype)) return false;
  if (slice.axis != 0 || slice.step != 1 || !(slice.begin == Dim(0)) || slice.end.is_constant()) return false;
  Value* positions = rewriter.value("iota", {}, {{"shape", Shape{slice.end}}});
  rewriter.replace(node.output(), rewriter.value("embedding", {positions, table}));
  return true;
}

}  // namespace atb
