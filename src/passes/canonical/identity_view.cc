// SPDX-License-Identifier: Apache-2.0
// Normal form: no view that changes nothing, and a reshape where a transpose only moves axes of extent 1.
#include <algorithm>

#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"

namespace atb {
namespace {

// The order of the elements stays if the axes longer than 1 keep theirs.
bool keeps_order(const Node& transpose) {
  const Shape& shape = transpose.input(0)->shape();
  std::vector<int64_t> longer;
  for (int64_t axis : transpose.attrs().get<std::vector<int64_t>>("perm")) {
    if (!(shape[static_cast<size_t>(axis)] == Dim(1))) longer.push_back(axis);
  }
  return std::is_sorted(longer.begin(), longer.end());
}

}  // namespace

bool identity_view(const Node& node, Rewriter& rewriter) {
  const bool is_transpose = node.is("transpose");
  if (is_transpose && !keeps_order(node)) return false;
  Value* x = node.input(0);
  if (x->shape() == node.output()->shape()) return pass_through(node, x, rewriter);
  if (!is_transpose) return false;
  rewriter.replace(node.output(), rewriter.reshape(x, node.output()->shape()));
  return true;
}

}  // namespace atb
