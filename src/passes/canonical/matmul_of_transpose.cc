// SPDX-License-Identifier: Apache-2.0
// Normal form: scores are q k^T by the flag of matmul, whatever turned k.
#include "passes/canonical/canonical.h"

namespace atb {
namespace {

bool swaps_last_two(const Node& transpose) {
  const auto& perm = transpose.attrs().get<std::vector<int64_t>>("perm");
  const size_t rank = perm.size();
  if (rank < 2) return false;
  for (size_t i = 0; i + 2 < rank; ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return perm[rank - 1] + 2 == static_cast<int64_t>(rank) && perm[rank - 2] + 1 == static_cast<int64_t>(rank);
}

}  // namespace

bool matmul_of_transpose(const Node& node, Rewriter& rewriter) {
  if (node.attrs().flag("transpose_b")) return false;
  const Node* transpose = node.input(1)->producer();
  if (transpose == nullptr || !transpose->is("transpose") || !swaps_last_two(*transpose)) return false;
  if (transpose->input(0)->is_constant()) return false;
  rewriter.replace(node.output(),
                   rewriter.value("matmul", {node.input(0), transpose->input(0)}, {{"transpose_b", true}}));
  return true;
}

}  // namespace atb
