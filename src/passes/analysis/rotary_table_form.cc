// SPDX-License-Identifier: Apache-2.0
// One rule an operator, from positions and frequencies up.
#include "passes/analysis/rotary_table_form.h"

#include <algorithm>
#include <cmath>

#include "passes/analysis/scalar.h"

namespace atb {
namespace {

using Form = RotaryTableForm;
using Function = RotaryTableForm::Function;

constexpr int64_t kMaxFrequencies = 4096;
constexpr int kMaxDepth = 24;

bool is_unit(const Dim& dim) { return dim == Dim(1); }

// Maps the axes of `after` to those of `before` under a reshape that only inserts and drops units.
std::optional<std::vector<int>> through_units(const Shape& before, const Shape& after) {
  std::vector<int> from(after.size(), -1);
  size_t axis = 0;
  const auto skip_units = [&] {
    while (axis < before.size() && is_unit(before[axis])) ++axis;
  };
  for (size_t i = 0; i < after.size(); ++i) {
    if (is_unit(after[i])) continue;
    skip_units();
    if (axis == before.size() || !(before[axis] == after[i])) return std::nullopt;
    from[i] = static_cast<int>(axis++);
  }
  skip_units();
  if (axis != before.size()) return std::nullopt;
  return from;
}

size_t lead_of(const Form& form) { return form.position_axes.size(); }

std::vector<int64_t> constants(const Shape& shape, size_t begin) {
  std::vector<int64_t> result;
  for (size_t i = begin; i < shape.size(); ++i) result.push_back(shape[i].is_constant() ? shape[i].constant() : -1);
  return result;
}

class Evaluator {
 public:
  std::optional<Form> evaluate(Value* value) {
    if (!is_float(value->type().dtype) || ++depth_ > kMaxDepth) return std::nullopt;
    std::optional<Form> form = value->is_constant() ? constant(value) : operation(*value);
    --depth_;
    return form;
  }

 private:
  static std::optional<Form> constant(Value* value) {
    const Constant& constant = *value->constant();
    const Dim size = num_elements(value->shape());
    if (constant.absent() || value->type().encoding != nullptr || size.constant() > kMaxFrequencies)
      return std::nullopt;
    const auto is_long = [](const Dim& dim) { return !is_unit(dim); };
    if (std::count_if(value->shape().begin(), value->shape().end(), is_long) > 1) return std::nullopt;
    const auto axis = std::find_if(value->shape().begin(), value->shape().end(), is_long);
    Form form;
    form.position_axes.assign(static_cast<size_t>(axis - value->shape().begin()), -1);
    form.frequencies = {constants(value->shape(), lead_of(form)), constant.to_f32()};
    form.inv_freq = value;
    return form;
  }

  std::optional<Form> operation(Value& value) {
    Node* node = value.producer();
    if (node == nullptr) return std::nullopt;
    if (node->is("cast")) return cast(*node);
    if (node->is("reshape")) return reshape(*node);
    if (node->is("transpose")) return transpose(*node);
    if (node->is("broadcast")) return broadcast(*node);
    if (node->is("concat")) return concat(*node);
    if (node->is("slice")) return slice(*node);
    if (node->is("mul")) return mul(*node);
    if (node->is("matmul")) return outer_product(*node);
    if (node->is("cos") || node->is("sin")) return trigonometry(*node);
    if (node->is("embedding")) return lookup(node->input(0), node->input(1));
    if (node->is("take") && node->inputs().size() == 2) return lookup(node->input(1), node->input(0));
    return std::nullopt;
  }

  static std::optional<Form> lookup(Value* rows, Value* table) {
    if (!table->is_constant() || table->constant()->absent() || table->type().encoding != nullptr) return std::nullopt;
    const std::vector<int64_t>& shape = table->constant()->shape();
    if (!is_float(table->type().dtype) || shape.size() != 2 || shape[1] > kMaxFrequencies) return std::nullopt;
    const IntegerSource source = integer_source(rows);
    Form form;
    form.function = Function::kLookup;
    form.positions = source.source;
    form.position_axes = source.axes;
    form.frequencies.dims = {shape[1]};
    for (int64_t column = 0; column < shape[1]; ++column) form.frequencies.items.push_back(static_cast<float>(column));
    form.lookup = table;
    return form;
  }

  std::optional<Form> cast(const Node& node) {
    Value* x = node.input(0);
    const DType to = node.output()->type().dtype;
    if (is_float(x->type().dtype)) {
      std::optional<Form> form = evaluate(x);
      // A rounded angle would be another one; a rounded table is what the operator that reads it works with.
      const bool widens = to == DType::kF32 || to == DType::kF64;
      return form && (widens || form->is_table()) ? form : std::nullopt;
    }
    if (to != DType::kF32) return std::nullopt;
    const IntegerSource source = integer_source(x);
    Form form;
    form.function = Function::kPosition;
    form.positions = source.source;
    form.position_axes = source.axes;
    return form;
  }

  // Units among the leading axes come and go; the trailing axes are regrouped.
  std::optional<Form> reshape(const Node& node) {
    std::optional<Form> form = evaluate(node.input(0));
    if (!form) return std::nullopt;
    const Shape& before = node.input(0)->shape();
    const Shape& after = node.output()->shape();
    size_t begin = after.size();  // of the trailing axes
    int64_t elements = 1;
    while (elements != form->frequencies.size() && begin > 0 && after[begin - 1].is_constant()) {
      elements *= after[--begin].constant();
    }
    if (!form->frequencies.dims.empty() && elements != form->frequencies.size()) return std::nullopt;
    if (form->frequencies.dims.empty()) begin = after.size();
    const auto lead = [](const Shape& shape, size_t size) {
      return Shape(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(size));
    };
    const std::optional<std::vector<int>> from = through_units(lead(before, lead_of(*form)), lead(after, begin));
    if (!from) return std::nullopt;
    std::vector<int> axes;
    for (const int axis : *from) axes.push_back(axis < 0 ? -1 : form->position_axes[static_cast<size_t>(axis)]);
    form->position_axes = std::move(axes);
    if (!form->frequencies.dims.empty()) form->frequencies.dims = constants(after, begin);
    return form;
  }

  // Frequencies become the last axis again, wherever they were.
  std::optional<Form> transpose(const Node& node) {
    std::optional<Form> form = evaluate_outer(node.input(0));
    if (!form) return std::nullopt;
    const auto& perm = node.attrs().get<std::vector<int64_t>>("perm");
    if (frequency_axis_ >= 0) {  // of an outer product [.., F, T]
      if (perm.back() != frequency_axis_) return std::nullopt;
      std::vector<int> axes;
      for (size_t i = 0; i + 1 < perm.size(); ++i) {
        axes.push_back(outer_axes_[static_cast<size_t>(perm[i])]);
      }
      form->position_axes = std::move(axes);
      return form;
    }
    std::vector<int> axes;
    for (size_t i = 0; i < perm.size(); ++i) {
      const auto axis = static_cast<size_t>(perm[i]);
      if (axis >= lead_of(*form)) {
        if (axis != i) return std::nullopt;
      } else {
        if (i >= lead_of(*form)) return std::nullopt;
        axes.push_back(form->position_axes[axis]);
      }
    }
    form->position_axes = std::move(axes);
    return form;
  }

  // An operand of transpose: frequency_axis_ says where the frequencies are if they are not last.
  std::optional<Form> evaluate_outer(Value* value) {
    frequency_axis_ = -1;
    const Node* node = value->producer();
    if (node != nullptr && (node->is("matmul") || node->is("mul"))) {
      std::optional<Form> form = frequencies_before_positions(*node);
      if (form) return form;
    }
    std::optional<Form> form = evaluate(value);
    frequency_axis_ = -1;
    return form;
  }

  // inv_freq [.., F, 1] by positions [.., 1, T], as a product of either kind.
  std::optional<Form> frequencies_before_positions(const Node& node) {
    if (node.is("matmul") && node.attrs().flag("transpose_b")) return std::nullopt;
    const std::optional<Form> a = evaluate(node.input(0));
    const std::optional<Form> b = evaluate(node.input(1));
    if (!a || !b || a->function != Function::kFrequency || b->function != Function::kPosition) return std::nullopt;
    const size_t rank = node.output()->shape().size();
    const std::vector<int64_t>& dims = a->frequencies.dims;  // [F, 1]
    if (rank < 2 || dims.size() != 2 || dims[1] != 1 || b->position_axes.size() < 2 ||
        !is_unit(node.input(1)->dim(-2)) || node.output()->type().dtype != DType::kF32) {
      return std::nullopt;
    }
    Form form = *b;
    form.function = Function::kAngle;
    form.frequencies = {{dims[0]}, a->frequencies.items};
    form.inv_freq = a->inv_freq;
    frequency_axis_ = static_cast<int64_t>(rank) - 2;
    outer_axes_.assign(rank - b->position_axes.size(), -1);
    outer_axes_.insert(outer_axes_.end(), b->position_axes.begin(), b->position_axes.end());
    return form;
  }

  std::optional<Form> broadcast(const Node& node) {
    std::optional<Form> form = evaluate(node.input(0));
    if (!form) return std::nullopt;
    const Shape& to = node.output()->shape();
    const size_t trailing = form->frequencies.dims.size();
    if (trailing > 0) {
      const std::optional<Block<float>> wide = broadcast_block(form->frequencies, constants(to, to.size() - trailing));
      if (!wide) return std::nullopt;
      form->frequencies = *wide;
    }
    form->position_axes.insert(form->position_axes.begin(), to.size() - trailing - lead_of(*form), -1);
    return form;
  }

  std::optional<Form> concat(const Node& node) {
    std::vector<Block<float>> parts;
    std::optional<Form> first;
    for (Value* input : node.inputs()) {
      std::optional<Form> form = evaluate(input);
      if (!form || form->frequencies.dims.empty()) return std::nullopt;
      if (!first) first = form;
      if (form->function != first->function || form->positions != first->positions || form->scale != first->scale ||
          form->position_axes != first->position_axes || form->lookup != first->lookup) {
        return std::nullopt;
      }
      parts.push_back(form->frequencies);
    }
    const std::optional<size_t> axis = frequency_axis(node, *first);
    if (!axis) return std::nullopt;
    const std::optional<Block<float>> joined = concat_blocks(parts, *axis);
    if (!joined) return std::nullopt;
    first->frequencies = *joined;
    return first;
  }

  std::optional<Form> slice(const Node& node) {
    std::optional<Form> form = evaluate(node.input(0));
    if (!form) return std::nullopt;
    const std::optional<size_t> axis = frequency_axis(node, *form);
    const Shape& bounds = node.attrs().get<Shape>("bounds");
    if (!axis || !bounds.at(0).is_constant() || !bounds.at(1).is_constant()) return std::nullopt;
    form->frequencies =
        slice_block(form->frequencies, *axis, bounds[0].constant(), bounds[1].constant(), node.attrs().integer("step"));
    return form;
  }

  // The axis of the node among the trailing ones.
  static std::optional<size_t> frequency_axis(const Node& node, const Form& form) {
    int64_t axis = node.attrs().integer("axis");
    if (axis < 0) axis += node.output()->rank();
    axis -= static_cast<int64_t>(lead_of(form));
    if (axis < 0 || axis >= static_cast<int64_t>(form.frequencies.dims.size())) return std::nullopt;
    return static_cast<size_t>(axis);
  }

  std::optional<Form> mul(const Node& node) {
    for (const bool swapped : {false, true}) {
      Value* a = node.input(swapped ? 1 : 0);
      Value* b = node.input(swapped ? 0 : 1);
      if (const std::optional<double> number = scalar_value(b); number && !scalar_value(a)) {
        std::optional<Form> form = a->shape() == node.output()->shape() ? evaluate(a) : std::nullopt;
        if (!form) return std::nullopt;
        if (*number == 1) return form;
        if (!form->is_table()) return std::nullopt;
        form->scale *= *number;
        return form;
      }
    }
    return angle(node.input(0), node.input(1), *node.output());
  }

  // Positions with a last axis of 1 by frequencies.
  std::optional<Form> angle(Value* a, Value* b, const Value& product) {
    std::optional<Form> position = evaluate(a);
    std::optional<Form> frequency = evaluate(b);
    if (!position || !frequency) return std::nullopt;
    const Value* positions = position->function == Function::kFrequency ? b : a;
    if (positions == b) std::swap(position, frequency);
    if (position->function != Function::kPosition || frequency->function != Function::kFrequency) return std::nullopt;
    const size_t rank = product.shape().size();
    const bool outer = frequency->frequencies.dims.size() == 1 && !positions->shape().empty() &&
                       is_unit(positions->shape().back()) && positions->shape().size() == rank;
    if (!outer || product.type().dtype != DType::kF32) return std::nullopt;
    position->function = Function::kAngle;
    position->position_axes.pop_back();
    position->frequencies = frequency->frequencies;
    position->inv_freq = frequency->inv_freq;
    return position;
  }

  std::optional<Form> outer_product(const Node& node) {
    if (!is_unit(node.input(0)->dim(-1)) || node.attrs().flag("transpose_b")) return std::nullopt;
    const Shape& b = node.input(1)->shape();
    if (b.size() < 2 || !is_unit(b[b.size() - 2])) return std::nullopt;
    return angle(node.input(0), node.input(1), *node.output());
  }

  std::optional<Form> trigonometry(const Node& node) {
    std::optional<Form> form = evaluate(node.input(0));
    if (!form || form->function != Function::kAngle) return std::nullopt;
    form->function = node.is("cos") ? Function::kCos : Function::kSin;
    return form;
  }

  int depth_ = 0;
  int64_t frequency_axis_ = -1;
  std::vector<int> outer_axes_;
};

}  // namespace

IntegerSource integer_source(Value* value) {
  IntegerSource result{value, {}};
  for (int axis = 0; axis < value->rank(); ++axis) result.axes.push_back(axis);
  for (const Node* node = value->producer(); node != nullptr; node = result.source->producer()) {
    Value* input = node->inputs().empty() ? nullptr : node->input(0);
    std::vector<int> from;
    if (node->is("cast") && !is_float(input->type().dtype) && input->type().dtype != DType::kBool) {
      for (int axis = 0; axis < input->rank(); ++axis) from.push_back(axis);
    } else if (node->is("reshape")) {
      const std::optional<std::vector<int>> units = through_units(input->shape(), node->output()->shape());
      if (!units) break;
      from = *units;
    } else if (node->is("broadcast")) {
      const Shape& to = node->output()->shape();
      const size_t added = to.size() - input->shape().size();
      from.assign(added, -1);
      for (size_t axis = 0; axis < input->shape().size(); ++axis) {
        from.push_back(is_unit(input->shape()[axis]) ? -1 : static_cast<int>(axis));
      }
    } else {
      break;
    }
    for (int& axis : result.axes) axis = axis < 0 ? -1 : from[static_cast<size_t>(axis)];
    result.source = input;
  }
  return result;
}

std::optional<RotaryTableForm> rotary_table_form(Value* value) { return Evaluator().evaluate(value); }

}  // namespace atb
