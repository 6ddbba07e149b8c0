// SPDX-License-Identifier: Apache-2.0
// Normal form: scores are masked by adding a mask.
#include <algorithm>

#include "passes/analysis/index_forms.h"
#include "passes/analysis/scalar.h"
#include "passes/canonical/canonical.h"

namespace atb {
namespace {

// -inf, or so low that adding a score does not change it. (The lowest f16 is not.)
bool is_fill(const Value* value) {
  const std::optional<double> number = scalar_value(value);
  return number && *number <= kBlocked;
}

bool only_softmax_reads(const Value* value) {
  if (value->graph()->is_output(value) || value->uses().empty()) return false;
  return std::all_of(value->uses().begin(), value->uses().end(),
                     [](const Use& use) { return use.node->is("softmax"); });
}

}  // namespace

bool masked_fill(const Node& node, Rewriter& rewriter) {
  if (!node.is("where") || !only_softmax_reads(node.output())) return false;
  const bool fill_no = is_fill(node.input(2));
  if (fill_no == is_fill(node.input(1))) return false;
  Value* x = node.input(fill_no ? 1 : 2);
  const DType dtype = node.output()->type().dtype;
  if (x->is_constant() || x->type().dtype != dtype || !(x->shape() == node.output()->shape())) return false;
  Value* seen = rewriter.constant(scalar_constant(dtype, 0.0));
  Value* blocked = node.input(fill_no ? 2 : 1);
  Value* mask = rewriter.value("where", {node.input(0), fill_no ? seen : blocked, fill_no ? blocked : seen});
  rewriter.replace(node.output(), rewriter.value("add", {x, mask}));
  return true;
}

}  // namespace atb
