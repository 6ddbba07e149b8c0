// SPDX-License-Identifier: Apache-2.0
// Every element of the last axis is a sum of features of x times table entries; a rotation has two such terms a pair.
#include "passes/analysis/rotary_form.h"

#include <algorithm>
#include <limits>
#include <map>

namespace atb {
namespace {

using Function = RotaryTableForm::Function;

constexpr int64_t kMaxFeatures = 1024;
constexpr int kMaxDepth = 16;

// sign * x[feature] * (1, cos or sin of frequency).
struct Term {
  int64_t feature = 0;
  int sign = 1;
  Function function = Function::kPosition;  // kPosition: no table
  float frequency = 0;
  Value* lookup = nullptr;
};
using Terms = std::vector<Term>;

struct Combination {
  Value* x = nullptr;
  Block<Terms> features;  // of the trailing axes
  bool changed = false;   // not x itself
  std::optional<RotaryTableForm> table;
  std::vector<int> position_depths;
};

std::vector<int64_t> trailing(const Shape& shape, size_t count) {
  std::vector<int64_t> dims;
  for (size_t i = shape.size() - count; i < shape.size(); ++i) {
    dims.push_back(shape[i].is_constant() ? shape[i].constant() : -1);
  }
  return dims;
}

class Evaluator {
 public:
  std::optional<Combination> evaluate(Value* value) {
    if (++depth_ > kMaxDepth) return std::nullopt;
    std::optional<Combination> result = operation(value);
    --depth_;
    return result ? result : itself(value);
  }

 private:
  static std::optional<Combination> itself(Value* value) {
    if (value->rank() < 2 || !value->dim(-1).is_constant() || value->dim(-1).constant() > kMaxFeatures) {
      return std::nullopt;
    }
    Combination result;
    result.x = value;
    result.features.dims = {value->dim(-1).constant()};
    for (int64_t i = 0; i < value->dim(-1).constant(); ++i) result.features.items.push_back({Term{.feature = i}});
    return result;
  }

  std::optional<Combination> operation(Value* value) {
    const Node* node = value->producer();
    if (node == nullptr || !is_float(value->type().dtype)) return std::nullopt;
    if (node->is("neg")) return negated(evaluate(node->input(0)));
    if (node->is("slice")) return slice(*node);
    if (node->is("concat")) return concat(*node);
    if (node->is("reshape")) return reshape(*node);
    if (node->is("mul")) return times_table(*node);
    if (node->is("add")) return sum(*node, 1);
    if (node->is("sub")) return sum(*node, -1);
    return std::nullopt;
  }

  static std::optional<Combination> negated(std::optional<Combination> c) {
    if (!c) return std::nullopt;
    for (Terms& terms : c->features.items) {
      for (Term& term : terms) term.sign = -term.sign;
    }
    c->changed = true;
    return c;
  }

  // The axis of the node among the trailing ones.
  static std::optional<size_t> feature_axis(const Node& node, const Combination& c) {
    int64_t axis = node.attrs().integer("axis");
    if (axis < 0) axis += node.output()->rank();
    axis -= node.output()->rank() - static_cast<int64_t>(c.features.dims.size());
    if (axis < 0) return std::nullopt;
    return static_cast<size_t>(axis);
  }

  std::optional<Combination> slice(const Node& node) {
    std::optional<Combination> c = evaluate(node.input(0));
    const Shape& bounds = node.attrs().get<Shape>("bounds");
    if (!c || !bounds.at(0).is_constant() || !bounds.at(1).is_constant()) return std::nullopt;
    const std::optional<size_t> axis = feature_axis(node, *c);
    if (!axis) return std::nullopt;
    c->features =
        slice_block(c->features, *axis, bounds[0].constant(), bounds[1].constant(), node.attrs().integer("step"));
    c->changed = true;
    return c;
  }

  std::optional<Combination> concat(const Node& node) {
    std::optional<Combination> whole;
    std::vector<Block<Terms>> parts;
    for (Value* input : node.inputs()) {
      std::optional<Combination> part = evaluate(input);
      if (!part || (whole && !merge(*whole, *part))) return std::nullopt;
      if (!whole) whole = part;
      parts.push_back(std::move(part->features));
    }
    const std::optional<size_t> axis = feature_axis(node, *whole);
    if (!axis) return std::nullopt;
    std::optional<Block<Terms>> joined = concat_blocks(parts, *axis);
    if (!joined) return std::nullopt;
    whole->features = std::move(*joined);
    whole->changed = true;
    return whole;
  }

  // Regroups the trailing axes of something that is no longer x; x itself only into pairs, [.., D] -> [.., D/2, 2].
  std::optional<Combination> reshape(const Node& node) {
    Value* input = node.input(0);
    const Shape& after = node.output()->shape();
    std::optional<Combination> c = evaluate(input);
    if (!c) return std::nullopt;
    const size_t lead = input->shape().size() - c->features.dims.size();
    if (after.size() <= lead ||
        !std::equal(after.begin(), after.begin() + static_cast<std::ptrdiff_t>(lead), input->shape().begin())) {
      return std::nullopt;
    }
    const std::vector<int64_t> dims = trailing(after, after.size() - lead);
    if (!c->changed && !(dims.size() == 2 && dims[1] == 2)) return std::nullopt;
    c->features.dims = dims;
    return c;
  }

  std::optional<Combination> times_table(const Node& node) {
    std::optional<RotaryTableForm> table = rotary_table_form(node.input(1));
    Value* x = node.input(0);
    Value* by = node.input(1);
    if (!table || !table->is_table()) {
      table = rotary_table_form(node.input(0));
      std::swap(x, by);
    }
    if (!table || !table->is_table() || !(x->shape() == node.output()->shape())) return std::nullopt;
    std::optional<Combination> c = evaluate(x);
    if (!c || c->table) return std::nullopt;
    const std::optional<Block<float>> frequencies = broadcast_block(table->frequencies, c->features.dims);
    if (!frequencies) return std::nullopt;
    for (size_t i = 0; i < frequencies->items.size(); ++i) {
      for (Term& term : c->features.items[i]) {
        term.function = table->function;
        term.frequency = frequencies->items[i];
        term.lookup = table->lookup;
      }
    }
    c->changed = true;
    const int positions_rank = table->positions->rank();
    c->position_depths.assign(static_cast<size_t>(positions_rank), 0);
    const int lead = static_cast<int>(table->position_axes.size());
    for (int axis = 0; axis < lead; ++axis) {
      const int of = table->position_axes[static_cast<size_t>(axis)];
      if (of >= 0) c->position_depths[static_cast<size_t>(of)] = lead - axis;
    }
    c->table = std::move(table);
    return c;
  }

  // Operands of a sum must each be rotated parts already: sums elsewhere, such as residuals, are not looked into.
  static bool may_be_part(const Value* value) {
    const Node* node = value->producer();
    if (node != nullptr && node->is("neg")) return may_be_part(node->input(0));
    return node != nullptr && (node->is("mul") || node->is("concat"));
  }

  std::optional<Combination> sum(const Node& node, int sign) {
    if (!may_be_part(node.input(0)) || !may_be_part(node.input(1))) return std::nullopt;
    std::optional<Combination> a = evaluate(node.input(0));
    std::optional<Combination> b = evaluate(node.input(1));
    if (sign < 0) b = negated(std::move(b));
    if (!a || !b || !a->table || !b->table || a->features.dims != b->features.dims || !merge(*a, *b)) {
      return std::nullopt;
    }
    for (size_t i = 0; i < a->features.items.size(); ++i) {
      Terms& terms = a->features.items[i];
      terms.insert(terms.end(), b->features.items[i].begin(), b->features.items[i].end());
    }
    return a;
  }

  static bool same_positions(const Value* a, const Value* b) {
    const bool counted =
        a->producer() != nullptr && b->producer() != nullptr && a->producer()->is("iota") && b->producer()->is("iota");
    return a == b || (counted && a->shape() == b->shape());
  }

  // Parts of one result: one x, and tables of the same positions where they have one. `a` gets the table of either.
  static bool merge(Combination& a, const Combination& b) {
    if (a.x != b.x || a.features.dims.size() != b.features.dims.size()) return false;
    if (!b.table) return true;
    if (!a.table) {
      a.table = b.table;
      a.position_depths = b.position_depths;
      return true;
    }
    return same_positions(a.table->positions, b.table->positions) && a.table->scale == b.table->scale &&
           a.position_depths == b.position_depths;
  }

  int depth_ = 0;
};

bool is_kept(const Terms& terms, int64_t feature) {
  return terms.size() == 1 && terms[0].function == Function::kPosition && terms[0].sign == 1 &&
         terms[0].feature == feature;
}

// x[own] cos + sign * x[other] sin, of one frequency or of two constant tables.
struct Rotated {
  Term cos, sin;
};
std::optional<Rotated> as_rotated(const Terms& terms, int64_t own, int64_t other, int sign) {
  if (terms.size() != 2) return std::nullopt;
  const Term& cos = terms[0].feature == own ? terms[0] : terms[1];
  const Term& sin = terms[0].feature == own ? terms[1] : terms[0];
  if (cos.feature != own || cos.sign != 1 || sin.feature != other || sin.sign != sign) return std::nullopt;
  const bool computed =
      cos.function == Function::kCos && sin.function == Function::kSin && cos.frequency == sin.frequency;
  const bool looked_up = cos.function == Function::kLookup && sin.function == Function::kLookup;
  if (!computed && !looked_up) return std::nullopt;
  return Rotated{cos, sin};
}

// Decides whether two entries of tables are the same, by data where those are constants.
class Entries {
 public:
  bool same(const Term& a, const Term& b) {
    if (a.lookup != b.lookup) return false;
    if (a.frequency == b.frequency) return true;
    return a.lookup != nullptr && same_columns(*a.lookup->constant(), a.frequency, b.frequency);
  }

 private:
  bool same_columns(const Constant& table, float a, float b) {
    std::vector<float>& data = data_[&table];
    if (data.empty()) data = table.to_f32();
    const auto width = static_cast<size_t>(table.shape()[1]);
    for (size_t row = 0; row + width <= data.size(); row += width) {
      if (data[row + static_cast<size_t>(a)] != data[row + static_cast<size_t>(b)]) return false;
    }
    return true;
  }

  std::map<const Constant*, std::vector<float>> data_;
};

// The pairs of the leading features, counted from `start` in x, if they are rotated.
std::optional<std::vector<Rotated>> rotation(const std::vector<Terms>& features, int64_t start, int64_t rotated,
                                             bool interleaved) {
  Entries entries;
  std::vector<Rotated> pairs;
  const int64_t half = rotated / 2;
  for (int64_t i = 0; i < half; ++i) {
    const int64_t first = interleaved ? 2 * i : i;
    const int64_t second = interleaved ? 2 * i + 1 : i + half;
    const std::optional<Rotated> a =
        as_rotated(features[static_cast<size_t>(first)], start + first, start + second, -1);
    const std::optional<Rotated> b =
        as_rotated(features[static_cast<size_t>(second)], start + second, start + first, 1);
    if (!a || !b || !entries.same(a->cos, b->cos) || !entries.same(a->sin, b->sin)) return std::nullopt;
    if (a->cos.lookup != (pairs.empty() ? a->cos : pairs[0].cos).lookup) return std::nullopt;
    if (a->sin.lookup != (pairs.empty() ? a->sin : pairs[0].sin).lookup) return std::nullopt;
    pairs.push_back(*a);
  }
  return pairs;
}

}  // namespace

std::optional<RotaryForm> rotary_form(Value* value) {
  const std::optional<Combination> c = Evaluator().evaluate(value);
  if (!c || !c->table || c->features.dims.size() != 1) return std::nullopt;
  const std::vector<Terms>& features = c->features.items;
  RotaryForm form;
  form.x = c->x;
  form.size = static_cast<int64_t>(features.size());
  if (features.empty() || c->x->type().dtype != value->type().dtype) return std::nullopt;
  form.first = std::numeric_limits<int64_t>::max();
  for (const Term& term : features[0]) form.first = std::min(form.first, term.feature);
  int64_t rotated = form.size;
  while (rotated > 0 && is_kept(features[static_cast<size_t>(rotated - 1)], form.first + rotated - 1)) --rotated;
  if (rotated == 0 || rotated % 2 != 0) return std::nullopt;
  std::optional<std::vector<Rotated>> pairs = rotation(features, form.first, rotated, false);
  form.interleaved = !pairs;  // one pair is rotated alike in both layouts
  if (!pairs) pairs = rotation(features, form.first, rotated, true);
  if (!pairs) return std::nullopt;
  form.table = *c->table;
  form.position_depths = c->position_depths;
  form.cos.table = pairs->front().cos.lookup;
  form.sin.table = pairs->front().sin.lookup;
  for (const Rotated& pair : *pairs) {
    if (form.cos.table == nullptr) {
      form.frequencies.push_back(pair.cos.frequency);
    } else {
      form.cos.columns.push_back(static_cast<int64_t>(pair.cos.frequency));
      form.sin.columns.push_back(static_cast<int64_t>(pair.sin.frequency));
    }
  }
  return form;
}

}  // namespace atb
