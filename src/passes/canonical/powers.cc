// SPDX-License-Identifier: Apache-2.0
// Normal forms of powers and roots: products, sqrt, rsqrt and reciprocal instead of pow; a product with rsqrt instead
// of a division by a root.
#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"

namespace atb {
namespace {

// x^2 and x^3 as products; the others by name. Null for exponents that have no spelling of their own.
Value* power(Value* x, double exponent, Rewriter& rewriter) {
  if (exponent == 1) return x;
  if (exponent == 2) return rewriter.value("mul", {x, x});
  if (exponent == 3) return rewriter.value("mul", {rewriter.value("mul", {x, x}), x});
  if (!is_float(x->type().dtype)) return nullptr;
  if (exponent == 0.5) return rewriter.value("sqrt", {x});
  if (exponent == -0.5) return rewriter.value("rsqrt", {x});
  if (exponent == -1) return rewriter.value("reciprocal", {x});
  return nullptr;
}

}  // namespace

bool power_by_name(const Node& node, Rewriter& rewriter) {
  const std::optional<WithScalar> parts = with_scalar(node);
  if (!parts || parts->scalar_first) return false;
  Value* result = power(parts->x, parts->scalar, rewriter);
  return result != nullptr && pass_through(node, result, rewriter);
}

bool reciprocal_by_name(const Node& node, Rewriter& rewriter) {
  if (node.is("reciprocal")) {
    const Node* root = made_by(node.input(0), "sqrt");
    return root != nullptr && pass_through(node, rewriter.value("rsqrt", {root->input(0)}), rewriter);
  }
  if (node.is("sqrt")) {
    const Node* inverse = made_by(node.input(0), "reciprocal");
    return inverse != nullptr && pass_through(node, rewriter.value("rsqrt", {inverse->input(0)}), rewriter);
  }
  const std::optional<WithScalar> parts = with_scalar(node);
  if (!parts || !parts->scalar_first || parts->scalar != 1 || !is_float(parts->x->type().dtype)) return false;
  return pass_through(node, rewriter.value("reciprocal", {parts->x}), rewriter);
}

bool division_by_root(const Node& node, Rewriter& rewriter) {
  const Node* root = made_by(node.input(1), "sqrt");
  if (root == nullptr || !read_once(root->output())) return false;
  // One root for a whole row: x / sqrt(y) of equal shapes gains nothing.
  if (root->output()->rank() == 0 || !(root->output()->dim(-1) == Dim(1))) return false;
  return pass_through(node, rewriter.value("mul", {node.input(0), rewriter.value("rsqrt", {root->input(0)})}),
                      rewriter);
}

}  // namespace atb
