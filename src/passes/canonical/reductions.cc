// SPDX-License-Identifier: Apache-2.0
// Normal forms of reductions: a mean instead of a sum and a division, kept axes instead of a reshape.
#include <algorithm>
#include <cmath>

#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"

namespace atb {
namespace {

// Number of elements that a reduction takes together, if it is a number.
std::optional<double> reduced_elements(const Node& reduction) {
  const Shape& shape = reduction.input(0)->shape();
  double count = 1;
  for (const int64_t axis : reduction.attrs().get<std::vector<int64_t>>("axes")) {
    const Dim& extent = shape[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis)];
    if (!extent.is_constant()) return std::nullopt;
    count *= static_cast<double>(extent.constant());
  }
  return count;
}

}  // namespace

bool mean_of_sum(const Node& node, Rewriter& rewriter) {
  const std::optional<Scaled> scaled = scaled_by_scalar(node.output());
  if (!scaled) return false;
  const Node* sum = made_by(scaled->x, "sum");
  if (sum == nullptr || !is_float(sum->output()->type().dtype) || !read_once(sum->output())) return false;
  const std::optional<double> count = reduced_elements(*sum);
  if (!count || std::abs(scaled->factor * *count - 1) > 1e-6) return false;
  return pass_through(node, rewriter.value("mean", {sum->input(0)}, sum->attrs()), rewriter);
}

bool kept_axes(const Node& node, Rewriter& rewriter) {
  const Node* reduction = node.input(0)->producer();
  const bool reduces = reduction != nullptr && (reduction->is("mean") || reduction->is("sum") || reduction->is("max"));
  if (!reduces || reduction->attrs().flag("keep") || !read_once(reduction->output())) return false;
  Attrs attrs = reduction->attrs();
  attrs.set("keep", true);
  return pass_through(node, rewriter.value(reduction->op_name(), {reduction->input(0)}, std::move(attrs)), rewriter);
}

}  // namespace atb
