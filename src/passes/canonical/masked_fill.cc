// SPDX-License-Identifier: Apache-2.0
// Normal form: scores are scaled, then masked by adding a mask.
#include <algorithm>
#include <cmath>

#include "passes/analysis/index_forms.h"
#include "passes/analysis/scalar.h"
#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"

namespace atb {
namespace {

// Stands for finite fills between kHidden and kAbsorbing: added to a score it leaves nothing of it, as a fill does that
// is put in its place, so that rows of hidden keys alone stay uniform.
constexpr double kInPlace = -1e38;

// where(c, fill, x), or where(c, x, fill): a number that hides x.
struct Fill {
  Value* condition;
  Value* x;
  double number;
  bool where_true;
};

std::optional<Fill> fill_of(const Value* value) {
  const Node* node = made_by(value, "where");
  if (node == nullptr) return std::nullopt;
  const auto hides = [&](size_t i) {
    const std::optional<double> number = scalar_value(node->input(i));
    return number && *number <= kHidden;
  };
  const bool where_true = hides(1);
  if (where_true == hides(2)) return std::nullopt;
  Value* x = node->input(where_true ? 2 : 1);
  if (x->is_constant() || !(x->type() == value->type())) return std::nullopt;
  return Fill{node->input(0), x, *scalar_value(node->input(where_true ? 1 : 2)), where_true};
}

// What, added to a score, has the effect of the fill in its place. Nothing where the type has no such number.
std::optional<double> additive(double fill, DType dtype) {
  if (std::isinf(fill)) return fill;
  if (dtype == DType::kF16) return std::nullopt;
  return fill <= kAbsorbing ? fill : kInPlace;
}

// A product of queries and keys, scaled or capped.
bool is_scores(const Value* value) {
  for (int i = 0; i < 8; ++i) {
    const Node* node = value->producer();
    if (node == nullptr) return false;
    if (node->is("matmul")) return true;
    if (!node->is("tanh") && !scaled_by_scalar(value)) return false;
    value = node->is("tanh") || !node->input(0)->is_constant() ? node->input(0) : node->input(1);
  }
  return false;
}

// Scores and what is added to them (null: nothing).
struct Masked {
  Value* scores;
  Value* mask;
};

Masked take_apart_sum(Value* value) {
  const Node* add = read_once(value) ? made_by(value, "add") : nullptr;
  if (add == nullptr || is_scores(add->input(0)) == is_scores(add->input(1))) return {value, nullptr};
  const size_t scores = is_scores(add->input(0)) ? 0 : 1;
  if (!(add->input(scores)->type() == value->type())) return {value, nullptr};
  return {add->input(scores), add->input(1 - scores)};
}

// Fills of two finite numbers would be told apart in rows of hidden keys alone.
bool agree(const std::vector<Fill>& fills) {
  const auto finite = [](const Fill& fill) { return !std::isinf(fill.number); };
  const auto first = std::find_if(fills.begin(), fills.end(), finite);
  return std::all_of(first, fills.end(),
                     [&](const Fill& fill) { return !finite(fill) || fill.number == first->number; });
}

bool only_softmax_reads(const Value* value) {
  if (value->graph()->is_output(value) || value->uses().empty()) return false;
  return std::all_of(value->uses().begin(), value->uses().end(),
                     [](const Use& use) { return use.node->is("softmax"); });
}

bool is_mask(const Value* value) {
  IndexForms forms;
  const std::optional<Form> form = forms.evaluate(value);
  return form && as_mask(*form);
}

// Read by softmaxes, maybe after a mask is added (GPT-Neo).
bool becomes_probabilities(const Value* value) {
  if (value->graph()->is_output(value) || value->uses().empty()) return false;
  return std::all_of(value->uses().begin(), value->uses().end(), [&](const Use& use) {
    if (use.node->is("softmax")) return true;
    if (!use.node->is("add") || !only_softmax_reads(use.node->output())) return false;
    const Value* other = use.node->input(use.node->input(0) == value ? 1 : 0);
    return other != value && is_mask(other);
  });
}

}  // namespace

bool masked_fill(const Node& node, Rewriter& rewriter) {
  if (!becomes_probabilities(node.output())) return false;
  const DType dtype = node.output()->type().dtype;
  std::vector<Fill> fills;  // the last one, which wins, first
  for (Value* at = node.output(); fills.empty() || read_once(at); at = fills.back().x) {
    const std::optional<Fill> fill = fill_of(at);
    if (!fill) break;
    if (!additive(fill->number, dtype)) return false;
    fills.push_back(*fill);
  }
  if (fills.empty() || !agree(fills)) return false;
  const auto number = [&](double value) { return rewriter.constant(scalar_constant(dtype, value)); };
  auto [scores, mask] = take_apart_sum(fills.back().x);
  if (mask == nullptr) mask = number(0.0);
  for (auto fill = fills.rbegin(); fill != fills.rend(); ++fill) {
    Value* hidden = number(*additive(fill->number, dtype));
    mask =
        rewriter.value("where", {fill->condition, fill->where_true ? hidden : mask, fill->where_true ? mask : hidden});
  }
  rewriter.replace(node.output(), rewriter.value("add", {scores, mask}));
  return true;
}

bool scale_below_mask(const Node& node, Rewriter& rewriter) {
  const std::optional<Scaled> scaled = scaled_by_scalar(node.output());
  if (!scaled || !(scaled->factor > 0) || !std::isfinite(scaled->factor) || !read_once(scaled->x)) return false;
  const DType dtype = node.output()->type().dtype;
  Value* factor = rewriter.constant(scalar_constant(dtype, scaled->factor, "scale"));
  const auto times = [&](Value* x) { return rewriter.value("mul", {x, factor}); };
  if (const std::optional<Fill> fill = fill_of(scaled->x)) {
    if (!(fill->number * scaled->factor <= kHidden)) return false;
    Value* hidden = rewriter.constant(scalar_constant(dtype, fill->number * scaled->factor));
    Value* x = times(fill->x);
    rewriter.replace(node.output(), rewriter.value("where", {fill->condition, fill->where_true ? hidden : x,
                                                             fill->where_true ? x : hidden}));
    return true;
  }
  const Masked sum = take_apart_sum(scaled->x);
  if (sum.mask == nullptr || !is_mask(sum.mask)) return false;
  rewriter.replace(node.output(), rewriter.value("add", {times(sum.scores), times(sum.mask)}));
  return true;
}

bool subtracted_mask(const Node& node, Rewriter& rewriter) {
  if (!only_softmax_reads(node.output()) || !is_scores(node.input(0)) || node.input(1)->is_constant()) return false;
  if (!(node.input(0)->type() == node.output()->type())) return false;
  Value* added = rewriter.value("neg", {node.input(1)});
  if (!is_mask(added)) return false;
  rewriter.replace(node.output(), rewriter.value("add", {node.input(0), added}));
  return true;
}

}  // namespace atb
