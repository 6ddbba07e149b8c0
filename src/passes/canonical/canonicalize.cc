// SPDX-License-Identifier: Apache-2.0
// The fixed point over all normal forms.
#include <unordered_set>

#include "passes/canonical/canonical.h"

namespace atb {
namespace {

constexpr NormalForm kNormalForms[] = {
    constants_right, scale_by_mul, reshape_of_reshape, transpose_of_transpose, identity_view, masked_fill,
};

// One edit at `node`, if any normal form applies; nodes that die with it are added to `gone`.
bool apply_one(Graph& graph, Node* node, std::unordered_set<const Node*>& gone) {
  for (const NormalForm form : kNormalForms) {
    Rewriter rewriter(graph, node);
    if (!form(*node, rewriter)) continue;
    rewriter.retire({node});
    if (rewriter.commit()) continue;
    gone.insert(rewriter.erased().begin(), rewriter.erased().end());
    return true;
  }
  return false;
}

}  // namespace

int64_t canonicalize(Graph& graph) {
  const int64_t limit = 16 * static_cast<int64_t>(graph.nodes().size()) + 64;
  int64_t total = 0;
  for (int64_t in_sweep = 1; in_sweep > 0;) {
    in_sweep = 0;
    std::unordered_set<const Node*> gone;
    for (Node* node : std::vector<Node*>(graph.nodes())) {
      if (gone.count(node) == 0 && apply_one(graph, node, gone)) ++in_sweep;
    }
    total += in_sweep;
    if (total > limit) throw_error(Code::kInternal, "[canonicalize] does not settle: ", total, " rewrites");
  }
  return total;
}

}  // namespace atb
