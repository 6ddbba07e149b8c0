// SPDX-License-Identifier: Apache-2.0
// Normal form: integers that are affine in one index are iota, times and plus a constant, in the shape they have.
#include <algorithm>
#include <cmath>
#include <limits>

#include "passes/analysis/index_forms.h"
#include "passes/analysis/scalar.h"
#include "passes/canonical/canonical.h"

namespace atb {
namespace {

constexpr double kMaxNumber = 1 << 30;

// What a value is to be: broadcast(reshape(cast(factor * iota + offset))), each only where it does something.
struct Wanted {
  std::vector<std::string> ops;  // from the result back
  size_t axis = 0;               // of the one index
  double factor = 0;             // 0: a constant
  double offset = 0;
};

std::optional<Wanted> wanted_form(const Value& value, const Affine& form) {
  Wanted wanted;
  wanted.offset = form.offset;
  for (size_t axis = 0; axis < form.rank(); ++axis) {
    if (!form.depends_on(axis) || value.shape()[axis] == Dim(1)) continue;
    if (wanted.factor != 0) return std::nullopt;
    wanted.factor = form.coefficients[axis];
    wanted.axis = axis;
  }
  if (std::abs(wanted.factor) > kMaxNumber || std::abs(wanted.offset) > kMaxNumber) return std::nullopt;
  Dim others = 1;
  for (size_t axis = 0; axis < form.rank(); ++axis) {
    if (wanted.factor == 0 || axis != wanted.axis) others = others * value.shape()[axis];
  }
  if (!(others == Dim(1))) wanted.ops.push_back("broadcast");
  if (wanted.factor == 0) {
    if (wanted.ops.empty() && form.rank() > 0) wanted.ops.push_back("reshape");
    return wanted;
  }
  if (form.rank() > 1) wanted.ops.push_back("reshape");
  if (value.type().dtype == DType::kI64) wanted.ops.push_back("cast");
  if (wanted.offset != 0) wanted.ops.push_back("add");
  if (wanted.factor != 1) wanted.ops.push_back("mul");
  wanted.ops.push_back("iota");
  return wanted;
}

bool is_already(const Value* value, const Wanted& wanted) {
  for (const std::string& op : wanted.ops) {
    const Node* node = value->producer();
    if (node == nullptr || !node->is(op)) return false;
    if (node->inputs().size() > 1 && !node->input(1)->is_constant()) return false;
    if (!node->inputs().empty()) value = node->input(0);
  }
  return wanted.factor != 0 || (value->is_constant() && num_elements(value->shape()) == Dim(1));
}

bool of_constants(const Node& node) {
  const auto& inputs = node.inputs();
  return std::all_of(inputs.begin(), inputs.end(), [](const Value* input) { return input->is_constant(); });
}

Value* build(Rewriter& rewriter, const Value& value, const Wanted& wanted) {
  const DType dtype = value.type().dtype;
  const auto number = [&](double n, DType type) { return rewriter.constant(scalar_constant(type, n)); };
  if (wanted.factor == 0) {
    Value* x = number(wanted.offset, dtype);
    if (wanted.ops.empty()) return x;
    return rewriter.value(wanted.ops[0], {x}, {{"shape", value.shape()}});
  }
  const Dim& length = value.shape()[wanted.axis];
  Value* x = rewriter.value("iota", {}, {{"shape", Shape{length}}});
  if (wanted.factor != 1) x = rewriter.value("mul", {x, number(wanted.factor, DType::kI32)});
  if (wanted.offset != 0) x = rewriter.value("add", {x, number(wanted.offset, DType::kI32)});
  if (dtype == DType::kI64) x = rewriter.value("cast", {x}, {{"dtype", std::string("i64")}});
  Shape alone(value.shape().size(), Dim(1));
  alone[wanted.axis] = length;
  x = rewriter.reshape(x, std::move(alone));
  if (wanted.ops[0] == "broadcast") x = rewriter.value("broadcast", {x}, {{"shape", value.shape()}});
  return x;
}

}  // namespace

bool affine_positions(const Node& node, Rewriter& rewriter) {
  if (node.outputs().size() != 1) return false;
  const Value& value = *node.output();
  if (value.type().dtype != DType::kI32 && value.type().dtype != DType::kI64) return false;
  IndexForms forms;
  const std::optional<Affine> form = forms.affine(&value);
  if (!form || !form->integral()) return false;
  const std::optional<Wanted> wanted = wanted_form(value, *form);
  if (!wanted || is_already(&value, *wanted)) return false;
  if (wanted->factor != 0 && of_constants(node)) return false;  // is folded
  rewriter.replace(node.output(), build(rewriter, value, *wanted));
  return true;
}

}  // namespace atb
