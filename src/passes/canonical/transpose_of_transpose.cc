// SPDX-License-Identifier: Apache-2.0
// Normal form: one transpose where there were several in a row.
#include "passes/canonical/canonical.h"

namespace atb {

bool transpose_of_transpose(const Node& node, Rewriter& rewriter) {
  if (!node.is("transpose")) return false;
  const Node* inner = node.input(0)->producer();
  if (inner == nullptr || !inner->is("transpose")) return false;
  const auto& first = inner->attrs().get<std::vector<int64_t>>("perm");
  std::vector<int64_t> perm;
  for (int64_t axis : node.attrs().get<std::vector<int64_t>>("perm")) perm.push_back(first[static_cast<size_t>(axis)]);
  rewriter.replace(node.output(), rewriter.transpose(inner->input(0), perm));
  return true;
}

}  // namespace atb
