// SPDX-License-Identifier: Apache-2.0
// What the fused attention does without is looked for behind views; the views are built again over what stays.
#include "passes/patterns/sdpa_util.h"

namespace atb {
namespace {

const std::vector<int64_t>& perm_of(const Node& node) { return node.attrs().get<std::vector<int64_t>>("perm"); }

bool equal_but(const Shape& a, const Shape& b, size_t axis) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (i != axis && equal(a[i], b[i]) != Tri::kYes) return false;
  }
  return true;
}

// reshape(broadcast(u)) where u [.., KV, 1, ..] becomes [.., KV, G, ..] becomes [.., KV * G, ..].
std::optional<Repeated> repeated_by_merge(const Node& reshape, size_t axis) {
  const Node* broadcast = reshape.input(0)->producer();
  if (broadcast == nullptr || !broadcast->is("broadcast")) return std::nullopt;
  const Shape& to = broadcast->output()->shape();
  const Shape& from = broadcast->input(0)->shape();
  Shape merged = to;
  if (to.size() < axis + 2) return std::nullopt;
  merged[axis] = to[axis] * to[axis + 1];
  merged.erase(merged.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
  if (equal(merged, reshape.output()->shape()) != Tri::kYes) return std::nullopt;
  if (!equal_but(from, to, axis + 1) || !(from[axis + 1] == Dim(1))) return std::nullopt;
  Repeated result{.source = broadcast->input(0), .shape = merged, .heads = to[axis], .turns = {}};
  result.shape[axis] = to[axis];
  return result;
}

}  // namespace

Value* tokens_first(Rewriter& rewriter, Value* x, const Dim& heads) {
  const int64_t rank = x->rank();
  std::vector<int64_t> perm = {0, rank - 2};
  for (int64_t axis = 1; axis + 2 < rank; ++axis) perm.push_back(axis);
  perm.push_back(rank - 1);
  Value* turned = rewriter.transpose(x, perm);
  return rewriter.reshape(turned, {x->dim(0), x->dim(-2), heads, x->dim(-1)});
}

Value* heads_first(Rewriter& rewriter, Value* x, const Shape& heads) {
  Shape split = {x->dim(0), x->dim(1)};
  split.insert(split.end(), heads.begin(), heads.end());
  split.push_back(x->dim(-1));
  Value* apart = rewriter.reshape(x, split);
  const int64_t rank = apart->rank();
  std::vector<int64_t> perm = {0};
  for (int64_t axis = 2; axis + 1 < rank; ++axis) perm.push_back(axis);
  perm.push_back(1);
  perm.push_back(rank - 1);
  return rewriter.transpose(apart, perm);
}

Value* swap_last(Rewriter& rewriter, Value* x) {
  std::vector<int64_t> perm;
  for (int64_t axis = 0; axis + 2 < x->rank(); ++axis) perm.push_back(axis);
  perm.push_back(x->rank() - 1);
  perm.push_back(x->rank() - 2);
  return rewriter.transpose(x, perm);
}

std::optional<Repeated> find_repeated(Value* x, size_t axis) {
  const Node* node = x->producer();
  if (node == nullptr) return std::nullopt;
  if (node->is("transpose")) {
    std::optional<Repeated> inner = find_repeated(node->input(0), static_cast<size_t>(perm_of(*node)[axis]));
    if (inner) inner->turns.push_back(node);
    return inner;
  }
  if (node->is("reshape")) return repeated_by_merge(*node, axis);
  if (!node->is("broadcast")) return std::nullopt;
  const Shape& from = node->input(0)->shape();
  if (!equal_but(from, x->shape(), axis) || !(from[axis] == Dim(1))) return std::nullopt;
  return Repeated{.source = node->input(0), .shape = from, .heads = 1, .turns = {}};
}

Value* without_repeats(Rewriter& rewriter, const Repeated& repeated) {
  Value* x = rewriter.reshape(repeated.source, repeated.shape);
  for (const Node* turn : repeated.turns) x = rewriter.transpose(x, perm_of(*turn));
  return x;
}

}  // namespace atb
