// SPDX-License-Identifier: Apache-2.0
// Normal forms of activations written by hand: sigmoid, SiLU, ReLU. GELU has a file of its own.
#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"

namespace atb {
namespace {

// x of 1 + exp(-x), else null.
Value* sigmoid_denominator(const Value* value) {
  const Node* sum = made_by(value, "add");
  const std::optional<WithScalar> parts = sum == nullptr ? std::nullopt : with_scalar(*sum);
  const Node* exp = parts && parts->scalar == 1 ? made_by(parts->x, "exp") : nullptr;
  const Node* neg = exp == nullptr ? nullptr : made_by(exp->input(0), "neg");
  return neg == nullptr ? nullptr : neg->input(0);
}

}  // namespace

bool negation(const Node& node, Rewriter& rewriter) {
  if (node.is("neg")) {
    const Node* inner = made_by(node.input(0), "neg");
    return inner != nullptr && pass_through(node, inner->input(0), rewriter);
  }
  const std::optional<WithScalar> parts = with_scalar(node);
  if (!parts || !is_float(parts->x->type().dtype)) return false;
  const bool negates = node.is("sub") ? parts->scalar_first && parts->scalar == 0 : parts->scalar == -1;
  return negates && pass_through(node, rewriter.value("neg", {parts->x}), rewriter);
}

bool sigmoid_chain(const Node& node, Rewriter& rewriter) {
  const bool inverse = node.is("reciprocal");
  Value* x = sigmoid_denominator(node.input(inverse ? 0 : 1));
  if (x == nullptr) return false;
  Value* sigmoid = rewriter.value("sigmoid", {x});
  return pass_through(node, inverse ? sigmoid : rewriter.value("mul", {node.input(0), sigmoid}), rewriter);
}

bool silu_chain(const Node& node, Rewriter& rewriter) {
  for (const size_t at : {0u, 1u}) {
    const Node* sigmoid = made_by(node.input(at), "sigmoid");
    Value* x = node.input(1 - at);
    if (sigmoid == nullptr || sigmoid->input(0) != x) continue;
    return pass_through(node, rewriter.value("silu", {x}), rewriter);
  }
  return false;
}

bool relu_chain(const Node& node, Rewriter& rewriter) {
  const std::optional<WithScalar> parts = with_scalar(node);
  if (!parts || parts->scalar != 0 || !is_float(parts->x->type().dtype)) return false;
  return pass_through(node, rewriter.value("relu", {parts->x}), rewriter);
}

}  // namespace atb
