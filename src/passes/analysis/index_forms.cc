// SPDX-License-Identifier: Apache-2.0
// Symbolic evaluation by one rule an operator.
#include "passes/analysis/index_forms.h"

#include "passes/analysis/constant_form.h"

namespace atb {
namespace {

bool is_integer(DType dtype) {
  return dtype == DType::kI32 || dtype == DType::kI64 || dtype == DType::kI8 || dtype == DType::kU8;
}

// Along an axis of one element the index is 0, also where a reader spreads it.
Form without_unit_axes(const Form& form, const Shape& shape) {
  const size_t rank = shape.size();
  std::vector<Affine> at;
  bool any = false;
  for (size_t axis = 0; axis < rank; ++axis) {
    const bool unit = shape[axis] == Dim(1) && depends_on(form, axis);
    at.push_back(unit ? constant_form(rank, 0) : index_form(rank, axis));
    any = any || unit;
  }
  return any ? substitute(form, at, rank) : form;
}

}  // namespace

void IndexForms::note(const Value& value) {
  if (!why_.empty()) return;
  if (value.is_constant()) {
    why_ = "constant @" + value.name() + " is neither one number nor two, one of them in a band";
  } else if (value.producer() == nullptr) {
    why_ = "input %" + value.name() + " may hold anything";
  } else {
    why_ = "what " + value.producer()->op_name() + " %" + value.name() + " computes is not followed";
  }
}

std::optional<Form> IndexForms::evaluate(const Value* value) {
  const auto known = forms_.find(value);
  if (known != forms_.end()) return known->second;
  std::optional<Form> form;
  if (++visited_ > kMaxVisited || depth_ > kMaxDepth) {
    if (why_.empty()) why_ = "too many operators";
  } else {
    ++depth_;
    if (value->is_constant()) {
      form = form_of(*value->constant());
    } else if (value->producer() != nullptr) {
      form = operation(*value->producer());
    }
    --depth_;
  }
  if (!form) form = opaque(*value);
  if (form) form = without_unit_axes(*form, value->shape());
  if (!form) note(*value);
  forms_.emplace(value, form);
  return form;
}

std::optional<Form> IndexForms::opaque(const Value& value) {
  const size_t rank = value.shape().size();
  const DType dtype = value.type().dtype;
  if (dtype != DType::kBool && !is_integer(dtype)) return std::nullopt;
  std::vector<Affine> at;
  for (size_t axis = 0; axis < rank; ++axis) at.push_back(index_form(rank, axis));
  if (dtype != DType::kBool) return Element{.rank = rank, .source = &value, .at = std::move(at)};
  Read read{.source = &value, .at = std::move(at), .negated = false};
  return Choice{.holds = {.rank = rank, .at_most_zero = {}, .reads = {std::move(read)}}};
}

std::optional<Form> IndexForms::operation(const Node& node) {
  if (node.is("iota")) return index_form(1, 0);
  if (node.is("reshape")) return reshape(node);
  if (node.is("transpose")) return transpose(node);
  if (node.is("broadcast")) return broadcast(node);
  if (node.is("slice")) return slice(node);
  if (node.is("concat")) return concat(node);
  if (node.is("take")) return take(node);
  if (node.is("embedding")) return embedding(node);
  if (node.is("cumsum")) return cumsum(node);
  if (node.is("where")) return where(node);
  if (node.inputs().size() == 1) return unary(node);
  if (node.inputs().size() == 2) return binary(node);
  return std::nullopt;
}

}  // namespace atb
