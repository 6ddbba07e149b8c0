// SPDX-License-Identifier: Apache-2.0
// Labelling by one rule an operator. An operator without a rule is refused: it may mix tokens.
#include "passes/analysis/axis_labels.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "passes/analysis/mask_predicate.h"
#include "passes/engine/matcher.h"

namespace atb {
namespace {

const char* label_name(Axis axis) {
  switch (axis) {
    case Axis::kBatch:
      return "batch";
    case Axis::kToken:
      return "token";
    case Axis::kLast:
      return "last token";
    case Axis::kRow:
      return "last token of each row";
    default:
      return "feature";
  }
}

std::string to_text(const Labels& labels) {
  std::string text;
  for (Axis axis : labels) text += (text.empty() ? "" : ", ") + std::string(label_name(axis));
  return "[" + text + "]";
}

struct Context {
  const Node& node;
  std::vector<const Labels*> inputs;  // null for absent ones
  const Dim& batch;
  const Dim& tokens;

  const Labels& labels(size_t i) const { return *inputs[i]; }
  const Shape& shape(size_t i) const { return node.input(i)->shape(); }
  bool has(size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
};

bool only_features(const Labels& labels) {
  return std::all_of(labels.begin(), labels.end(), [](Axis axis) { return axis == Axis::kFeature; });
}

bool mentions(const Dim& dim, const Dim& symbol) {
  if (symbol.is_constant()) return false;
  return !(dim == dim.substitute({{symbol.str(), Dim(1)}}));
}

using LabelRule = std::function<Labels(const Context&)>;

// Weights and the like, inputs [first, last), must be the same for every token.
void require_features(const Context& c, size_t first, size_t last = SIZE_MAX) {
  for (size_t i = first; i < std::min(last, c.inputs.size()); ++i) {
    if (c.has(i) && !only_features(c.labels(i))) {
      refuse_cache(c.node, "input " + c.node.input(i)->name() + " has axes " + to_text(c.labels(i)) +
                               "; only attention may combine tokens");
    }
  }
}

Labels same_labels(const Context& c) { return c.labels(0); }

// Works along the last axis with weights, inputs [1, last): linear, norms, softmax.
Labels along_features_until(const Context& c, size_t last) {
  const Labels& x = c.labels(0);
  if (x.empty() || x.back() != Axis::kFeature) {
    refuse_cache(c.node, "its last axis is the " + std::string(label_name(x.empty() ? Axis::kFeature : x.back())) +
                             " axis, so it mixes tokens");
  }
  require_features(c, 1, last);
  return x;
}

Labels along_features(const Context& c) { return along_features_until(c, c.inputs.size()); }

// Distance of the token axis from the last, -1 without one.
int64_t token_axis(const Labels& labels) {
  const auto token = std::find(labels.begin(), labels.end(), Axis::kToken);
  return token == labels.end() ? -1 : labels.end() - token - 1;
}

// numpy broadcasting: a unit feature axis goes with anything, all others must stand for the same.
Labels elementwise(const Context& c) {
  const size_t rank = c.node.output()->shape().size();
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const int64_t a = token_axis(c.labels(i));
      const int64_t b = token_axis(c.labels(j));
      if (a < 0 || b < 0 || a == b) continue;
      refuse_cache(c.node, "pairs of positions outside attention; SDPA must fuse what reads them");
    }
  }
  std::vector<std::optional<Axis>> result(rank);
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Labels& labels = c.labels(i);
    for (size_t axis = 0; axis < labels.size(); ++axis) {
      if (labels[axis] == Axis::kFeature && c.shape(i)[axis] == Dim(1)) continue;
      std::optional<Axis>& have = result[rank - labels.size() + axis];
      if (have.value_or(labels[axis]) != labels[axis]) {
        refuse_cache(c.node, "combines a " + std::string(label_name(*have)) + " axis with the " +
                                 label_name(labels[axis]) + " axis of " + c.node.input(i)->name());
      }
      have = labels[axis];
    }
  }
  Labels labels;
  for (const std::optional<Axis>& axis : result) labels.push_back(axis.value_or(Axis::kFeature));
  return labels;
}

Labels combine_residual(const Context& c) {
  if (c.labels(0) != c.labels(1)) {
    refuse_cache(c.node, "adds axes " + to_text(c.labels(1)) + " to " + to_text(c.labels(0)));
  }
  require_features(c, 2);
  return c.labels(0);
}

Labels fused_linear(const Context& c) {
  constexpr size_t kResidual = 5;
  Labels labels = along_features_until(c, kResidual);
  if (c.has(kResidual) && c.labels(kResidual) != labels) {
    refuse_cache(c.node, "adds axes " + to_text(c.labels(kResidual)) + " to " + to_text(labels));
  }
  return labels;
}

// What stopped SDPA from fusing the attention that begins with these scores: " (..)", or nothing where that is not
// known.
std::string why_not_fused(const Node& scores) {
  const Value* at = scores.output();
  for (int i = 0; i < 16 && at->uses().size() == 1; ++i) {
    Node* reader = at->uses()[0].node;
    if (reader->is("matmul")) {
      const MatchResult result = match_pattern(*PatternRegistry::instance().find("SDPA"), reader);
      const MatchFailure& miss = result.failure;
      if (result.match) return "";
      return " (" + miss.node + ": " + miss.constraint + ", found " + miss.actual + ", needs " + miss.expected + ")";
    }
    at = reader->output(0);
  }
  return "";
}

Labels matmul(const Context& c) {
  const Labels& a = c.labels(0);
  if (!only_features(c.labels(1))) {
    refuse_cache(c.node, "multiplies tokens by tokens; attention must be fused by SDPA first" + why_not_fused(c.node));
  }
  if (a.back() != Axis::kFeature) refuse_cache(c.node, "sums over the token axis");
  if (c.labels(1).size() != 2) refuse_cache(c.node, "a right factor of more than two axes");
  return a;
}

Labels embedding(const Context& c) {
  require_features(c, 1);
  Labels result = c.labels(0);
  result.push_back(Axis::kFeature);
  return result;
}

Labels iota(const Context& c) {
  const Dim& length = c.node.output()->dim(0);
  if (length == c.tokens) return {Axis::kToken};
  if (mentions(length, c.tokens) || mentions(length, c.batch)) {
    refuse_cache(c.node, "counts to " + length.str() + ", not to the number of tokens " + c.tokens.str());
  }
  return {Axis::kFeature};
}

Labels rotary_table(const Context& c) {
  require_features(c, 1);
  Labels result = c.labels(0);
  result.push_back(Axis::kFeature);
  return result;
}

// x [..., T, H, D], cos and sin [..., T, R/2] from input `cos` on.
void require_rotary(const Context& c, size_t cos) {
  for (size_t i = 0; i < cos; ++i) {
    const Labels& x = c.labels(i);
    if (x.size() < 3 || x[x.size() - 3] != Axis::kToken || x.back() != Axis::kFeature ||
        x[x.size() - 2] != Axis::kFeature) {
      refuse_cache(c.node, "rotates axes " + to_text(x) + ", not [..., token, feature, feature]");
    }
  }
  for (size_t i = cos; i < cos + 2; ++i) {
    const Labels& table = c.labels(i);
    if (table.size() < 2 || table[table.size() - 2] != Axis::kToken || table.back() != Axis::kFeature) {
      refuse_cache(c.node,
                   c.node.input(i)->name() + " has axes " + to_text(table) + ", so it is no table of positions");
    }
  }
}

Labels rotary(const Context& c) {
  require_rotary(c, 1);
  return c.labels(0);
}

Labels rotary_embedding(const Context& c) {
  require_rotary(c, 2);
  return c.labels(0);
}

Labels flash_attention(const Context& c) {
  const Labels wanted = {Axis::kBatch, Axis::kToken, Axis::kFeature, Axis::kFeature};
  for (size_t i = 0; i < 3; ++i) {
    if (c.labels(i) != wanted) {
      refuse_cache(c.node, c.node.input(i)->name() + " has axes " + to_text(c.labels(i)) + ", not " + to_text(wanted));
    }
  }
  return wanted;
}

Labels transpose(const Context& c) {
  Labels result;
  for (int64_t axis : c.node.attrs().get<std::vector<int64_t>>("perm")) {
    result.push_back(c.labels(0)[static_cast<size_t>(axis)]);
  }
  return result;
}

// Whether nothing but unit axes lies between the batch and the last token.
bool last_beside_batch(const Labels& labels, const Shape& shape) {
  const auto last = std::find(labels.begin(), labels.end(), Axis::kLast) - labels.begin();
  const auto batch = std::find(labels.begin(), labels.end(), Axis::kBatch) - labels.begin();
  if (batch == std::ssize(labels)) return false;
  return std::all_of(shape.begin() + std::min(last, batch) + 1, shape.begin() + std::max(last, batch),
                     [](const Dim& extent) { return extent == Dim(1); });
}

// Batch and token axes must come out whole, in order; what lies between them may be regrouped. The last token's axis
// may go, as in x[:, -1]: then each row of the batch is one.
Labels reshape(const Context& c) {
  const Shape& from = c.shape(0);
  const Shape& to = c.node.output()->shape();
  Labels result(to.size(), Axis::kFeature);
  bool drops_last = false;
  size_t begin = 0;
  Dim pending = 1;  // elements of feature axes not yet placed
  bool has_batch = false;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    const Axis label = c.labels(0)[axis];
    if (label == Axis::kFeature || (from[axis] == Dim(1) && label != Axis::kLast)) {
      pending = pending * from[axis];
      continue;
    }
    Dim placed = 1;
    size_t at = begin;
    while (at < to.size() && !(placed == pending && to[at] == from[axis])) placed = placed * to[at++];
    if (at == to.size() && label == Axis::kLast && last_beside_batch(c.labels(0), from)) {
      drops_last = true;
      continue;
    }
    if (at == to.size()) {
      refuse_cache(c.node, "regroups the " + std::string(label_name(label)) + " axis of " + to_string(from) + " into " +
                               to_string(to));
    }
    result[at] = label;
    has_batch = has_batch || label == Axis::kBatch;
    begin = at + 1;
    pending = 1;
  }
  if (drops_last) std::replace(result.begin(), result.end(), Axis::kBatch, Axis::kRow);
  const auto token = std::find(result.begin(), result.end(), Axis::kToken);
  if (!has_batch && token != result.end()) {  // [T] -> [1, T]: the unit axis stands for the batch
    for (auto it = result.begin(); it != token; ++it) {
      if (!(to[static_cast<size_t>(it - result.begin())] == Dim(1))) continue;
      *it = Axis::kBatch;
      break;
    }
  }
  return result;
}

size_t axis_of(const Context& c, int64_t axis) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(c.labels(0).size()) : axis);
}

Axis label_at(const Context& c, int64_t axis) { return c.labels(0)[axis_of(c, axis)]; }

// Works along axes of features alone.
void require_feature_axis(const Context& c, int64_t axis) {
  const Axis label = label_at(c, axis);
  if (label == Axis::kFeature) return;
  refuse_cache(c.node, "works along the " + std::string(label_name(label)) + " axis, so it mixes tokens");
}

Labels concat(const Context& c) {
  require_feature_axis(c, c.node.attrs().integer("axis"));
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    if (c.labels(i) == c.labels(0)) continue;
    refuse_cache(c.node, "joins axes " + to_text(c.labels(i)) + " with " + to_text(c.labels(0)));
  }
  return c.labels(0);
}

// Of features; or the last token, which the step selects for itself.
Labels slice(const Context& c) {
  const int64_t axis = c.node.attrs().integer("axis");
  if (label_at(c, axis) != Axis::kToken) {
    require_feature_axis(c, axis);
    return c.labels(0);
  }
  const Shape& bounds = c.node.attrs().get<Shape>("bounds");
  if (!(bounds.at(0) == c.tokens - Dim(1)) || !(bounds.at(1) == c.tokens)) {
    refuse_cache(c.node, "takes tokens " + bounds.at(0).str() + " to " + bounds.at(1).str() +
                             "; only the last one may be taken");
  }
  Labels result = c.labels(0);
  result[axis_of(c, axis)] = Axis::kLast;
  return result;
}

// New extents of the batch or of tokens stand for those.
Labels broadcast(const Context& c) {
  const Shape& to = c.node.output()->shape();
  const size_t added = to.size() - c.labels(0).size();
  Labels result(to.size(), Axis::kFeature);
  for (size_t axis = 0; axis < to.size(); ++axis) {
    if (axis >= added && !(c.shape(0)[axis - added] == Dim(1) && c.labels(0)[axis - added] == Axis::kFeature)) {
      result[axis] = c.labels(0)[axis - added];
    } else if (to[axis] == c.batch) {
      result[axis] = Axis::kBatch;
    } else if (to[axis] == c.tokens) {
      result[axis] = Axis::kToken;
    }
  }
  if (std::count(result.begin(), result.end(), Axis::kToken) > 1) {
    refuse_cache(c.node, "pairs of positions outside attention; SDPA must fuse what reads them");
  }
  return result;
}

Labels reduction(const Context& c) {
  std::vector<bool> reduced(c.labels(0).size(), false);
  for (const int64_t axis : c.node.attrs().get<std::vector<int64_t>>("axes")) {
    require_feature_axis(c, axis);
    reduced[axis_of(c, axis)] = true;
  }
  if (c.node.attrs().flag("keep")) return c.labels(0);
  Labels result;
  for (size_t axis = 0; axis < reduced.size(); ++axis) {
    if (!reduced[axis]) result.push_back(c.labels(0)[axis]);
  }
  return result;
}

Labels cumsum(const Context& c) {
  require_feature_axis(c, c.node.attrs().integer("axis"));
  return c.labels(0);
}

// Rows of a table by indices on its first axis.
Labels take(const Context& c) {
  if (!only_features(c.labels(0)) || c.inputs.size() != 2) {
    refuse_cache(c.node, "takes from " + c.node.input(0)->name() + " with axes " + to_text(c.labels(0)) +
                             "; only rows of a table, or the last token as x[:, -1], may be taken");
  }
  Labels result = c.labels(1);
  result.insert(result.end(), c.labels(0).size() - 1, Axis::kFeature);
  return result;
}

const std::map<std::string, LabelRule, std::less<>>& rules() {
  static const std::map<std::string, LabelRule, std::less<>> table = {
      {"broadcast", broadcast},
      {"concat", concat},
      {"cumsum", cumsum},
      {"embedding", embedding},
      {"flash_attention", flash_attention},
      {"fused_add_norm", combine_residual},
      {"fused_gate_up", along_features},
      {"fused_linear", fused_linear},
      {"iota", iota},
      {"layer_norm", along_features},
      {"linear", along_features},
      {"matmul", matmul},
      {"max", reduction},
      {"mean", reduction},
      {"merged_matmul", along_features},
      {"reshape", reshape},
      {"rms_norm", along_features},
      {"rotary", rotary},
      {"rotary_embedding", rotary_embedding},
      {"rotary_table", rotary_table},
      {"slice", slice},
      {"softmax", along_features},
      {"sum", reduction},
      {"take", take},
      {"transpose", transpose},
  };
  return table;
}

}  // namespace

namespace {

// First of all, so that a refusal names the attention and not a node of its mask.
void check_attention(const Node& node) {
  if (node.input(3) != nullptr) refuse_cache(node, why_not_cached(node.input(3)));
  if (!node.attrs().flag("causal")) refuse_cache(node, "tokens see later ones, so keys cannot be cached");
}

}  // namespace

bool is_broadcasting(const Node& node) {
  static const std::set<std::string, std::less<>> names = {
      "add",     "sub",     "mul",          "div",       "pow",        "where",       "equal",     "less",
      "maximum", "minimum", "floor_divide", "remainder", "less_equal", "logical_and", "logical_or"};
  return names.count(node.op_name()) != 0;
}

bool is_elementwise(const Node& node) {
  static const std::set<std::string, std::less<>> names = {"abs",   "cast",        "cos", "erf",  "exp",        "gelu",
                                                           "log",   "logical_not", "neg", "relu", "reciprocal", "silu",
                                                           "rsqrt", "sigmoid",     "sin", "sqrt", "tanh"};
  return names.count(node.op_name()) != 0;
}

void refuse_cache(const Node& node, const std::string& why) {
  const std::string scope = node.scope().empty() ? "" : ", " + node.scope();
  throw_error(Code::kUnsupported, "[insert_kv_cache] ", node.name(), " (", node.op_name(), scope, "): ", why);
}

AxisLabels::AxisLabels(const Graph& graph) {
  if (graph.inputs().size() != 1 || graph.inputs()[0]->rank() != 2 || is_float(graph.inputs()[0]->type().dtype)) {
    std::string inputs;
    for (const Value* input : graph.inputs()) {
      inputs += (inputs.empty() ? "" : ", ") + input->name() + " " + input->type().str();
    }
    throw_error(Code::kUnsupported, "[insert_kv_cache] inputs ", inputs.empty() ? "none" : inputs,
                ": needs one input, token ids [B, T]");
  }
  ids_ = graph.inputs()[0];
  batch_ = ids_->dim(0);
  tokens_ = ids_->dim(1);
  if (tokens_.is_constant()) {
    throw_error(Code::kUnsupported, "[insert_kv_cache] input ", ids_->name(), " ", ids_->type().str(),
                ": the number of tokens is fixed; export with a dynamic one");
  }
  labels_[ids_] = {Axis::kBatch, Axis::kToken};
  for (const Value* constant : graph.constants()) labels_[constant] = Labels(constant->shape().size(), Axis::kFeature);
  for (const Node* node : graph.nodes()) {
    if (node->is("flash_attention")) check_attention(*node);
  }
  for (const Node* node : graph.nodes()) label_node(*node);
}

void AxisLabels::label_node(const Node& node) {
  const auto rule = rules().find(node.op_name());
  const bool by_element = is_broadcasting(node) || is_elementwise(node);
  if (!by_element && rule == rules().end()) refuse_cache(node, "is not known to work token by token");
  Context context{.node = node, .inputs = {}, .batch = batch_, .tokens = tokens_};
  for (const Value* input : node.inputs()) {
    context.inputs.push_back(input == nullptr ? nullptr : &labels_.at(input));
  }
  const Labels labels = !by_element            ? rule->second(context)
                        : is_elementwise(node) ? same_labels(context)
                                               : elementwise(context);
  for (const Value* output : node.outputs()) {
    labels_[output] = labels;
    check_extents(node, *output);
  }
}

// Feature axes must not grow with the sequence, and the others must be exactly what they are called.
void AxisLabels::check_extents(const Node& node, const Value& value) const {
  const Labels& labels = labels_.at(&value);
  for (size_t axis = 0; axis < labels.size(); ++axis) {
    const Dim& extent = value.shape()[axis];
    const bool right = labels[axis] == Axis::kToken   ? extent == tokens_
                       : labels[axis] == Axis::kLast  ? extent == Dim(1)
                       : labels[axis] == Axis::kRow   ? extent == batch_
                       : labels[axis] == Axis::kBatch ? extent == batch_ || extent == Dim(1)
                                                      : !mentions(extent, tokens_) && !mentions(extent, batch_);
    if (!right) {
      refuse_cache(node, "axis " + std::to_string(axis) + " of " + to_string(value.shape()) + " is " + extent.str() +
                             " as a " + label_name(labels[axis]) + " axis");
    }
  }
}

bool AxisLabels::selects_last(const Node& node) const {
  if (node.is("slice")) return of(node.output()) != of(node.input(0));
  const Labels& labels = of(node.output());
  const bool has_last =
      std::any_of(labels.begin(), labels.end(), [](Axis axis) { return axis == Axis::kLast || axis == Axis::kRow; });
  return node.is("reshape") && has_last && step_shape(node.input(0)) == step_shape(node.output());
}

Shape AxisLabels::step_shape(const Value* value) const {
  Shape shape;
  const Labels& labels = of(value);
  for (size_t axis = 0; axis < labels.size(); ++axis) {
    if (labels[axis] == Axis::kBatch) continue;
    const bool last = labels[axis] == Axis::kLast || labels[axis] == Axis::kRow;
    shape.push_back(last ? tokens_ : value->shape()[axis]);
  }
  return shape;
}

int64_t AxisLabels::step_axis(const Value* value, int64_t axis) const {
  const Labels& labels = of(value);
  const auto end = labels.begin() + (axis < 0 ? axis + value->rank() : axis);
  return std::count_if(labels.begin(), end, [](Axis label) { return label != Axis::kBatch; });
}

}  // namespace atb
