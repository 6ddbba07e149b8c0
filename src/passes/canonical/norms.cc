// SPDX-License-Identifier: Apache-2.0
// Normal forms of norms: the chains of RMSNorm and LayerNorm as one operator, which then takes its weight and bias up.
#include "passes/analysis/scalar.h"
#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"

namespace atb {
namespace {

const Node* last_axis_mean(const Value* value) {
  const Node* mean = made_by(value, "mean");
  return mean != nullptr && over_last_axis(*mean) && mean->attrs().flag("keep") ? mean : nullptr;
}

bool is_square_of(const Value* value, const Value* x) {
  const Node* square = made_by(value, "mul");
  return square != nullptr && square->input(0) == x && square->input(1) == x;
}

// eps of 1 / sqrt(mean(x^2) + eps) over the last axis: inside the root, so that near-zero rows come out the same.
std::optional<double> inverse_rms_of(const Value* value, const Value* x) {
  const Node* root = made_by(value, "rsqrt");
  const Node* sum = root == nullptr ? nullptr : made_by(root->input(0), "add");
  if (sum == nullptr) return std::nullopt;
  const std::optional<WithScalar> parts = with_scalar(*sum);
  if (!parts || parts->scalar < 0) return std::nullopt;
  const Node* mean = last_axis_mean(parts->x);
  if (mean == nullptr || !is_square_of(mean->input(0), x)) return std::nullopt;
  return literal(parts->scalar);
}

// A weight is a constant, or is computed from constants whose data is not there yet (1 + w of a config alone).
bool from_constants(const Value* value, int depth = 3) {
  if (value->is_constant()) return true;
  const Node* node = value->producer();
  if (node == nullptr || node->inputs().empty() || depth == 0) return false;
  for (const Value* input : node->inputs()) {
    if (input != nullptr && !from_constants(input, depth - 1)) return false;
  }
  return true;
}

// `value` as an operand [width] of a norm whose result is `out`; null if it is none.
Value* vector_operand(Value* value, const Value* out, Rewriter& rewriter) {
  const Dim& width = out->dim(-1);
  if (const ConstantRef constant = vector_constant(value, width, out->rank())) return rewriter.constant(constant);
  const bool fits = value->rank() == 1 && equal(value->dim(0), width) == Tri::kYes;
  return fits && is_float(value->type().dtype) && from_constants(value) ? value : nullptr;
}

// The operands of a commutative node as (a norm that nothing else reads, the other).
struct NormAndOperand {
  const Node* norm = nullptr;
  Value* operand = nullptr;
};
NormAndOperand norm_and_operand(const Node& node) {
  for (const size_t at : {0u, 1u}) {
    const Node* norm = node.input(at)->producer();
    if (norm == nullptr || (!norm->is("rms_norm") && !norm->is("layer_norm")) || !read_once(norm->output())) continue;
    return {norm, node.input(1 - at)};
  }
  return {};
}

bool is_ones(const Value* weight) {
  const Dim& width = weight->dim(0);
  return weight->is_constant() && width.is_constant() && weight->constant() == ones(width.constant());
}

}  // namespace

bool rms_norm_chain(const Node& node, Rewriter& rewriter) {
  for (const size_t at : {0u, 1u}) {
    Value* x = node.input(at);
    const std::optional<double> eps = inverse_rms_of(node.input(1 - at), x);
    if (!eps || !(x->type() == node.output()->type()) || !x->dim(-1).is_constant()) continue;
    Value* weight = rewriter.constant(ones(x->dim(-1).constant()));
    return pass_through(node, rewriter.value("rms_norm", {x, weight}, {{"eps", *eps}}), rewriter);
  }
  return false;
}

bool layer_norm_chain(const Node& node, Rewriter& rewriter) {
  const Node* centered = made_by(node.input(0), "sub");
  if (centered == nullptr) return false;
  Value* x = centered->input(0);
  const Node* mean = last_axis_mean(centered->input(1));
  if (mean == nullptr || mean->input(0) != x) return false;
  std::vector<Value*> inputs = {x};
  if (!is_ones(node.input(1))) inputs.push_back(node.input(1));
  return pass_through(node, rewriter.value("layer_norm", inputs, {{"eps", node.attrs().real("eps")}}), rewriter);
}

bool norm_weight(const Node& node, Rewriter& rewriter) {
  const auto [norm, operand] = norm_and_operand(node);
  if (norm == nullptr) return false;
  const bool is_rms = norm->is("rms_norm");
  if (is_rms ? !is_ones(norm->input(1)) : norm->input(1) != nullptr || norm->input(2) != nullptr) return false;
  Value* weight = vector_operand(operand, node.output(), rewriter);
  if (weight == nullptr) return false;
  return pass_through(node, rewriter.value(norm->op_name(), {norm->input(0), weight}, norm->attrs()), rewriter);
}

bool norm_bias(const Node& node, Rewriter& rewriter) {
  const auto [norm, operand] = norm_and_operand(node);
  if (norm == nullptr || !norm->is("layer_norm") || norm->input(1) == nullptr || norm->input(2) != nullptr)
    return false;
  Value* bias = vector_operand(operand, node.output(), rewriter);
  if (bias == nullptr) return false;
  return pass_through(node, rewriter.value("layer_norm", {norm->input(0), norm->input(1), bias}, norm->attrs()),
                      rewriter);
}

}  // namespace atb
