// SPDX-License-Identifier: Apache-2.0
// The operator registry and the default cost of a node.
#include "ir/op.h"

#include <algorithm>

#include "ir/schema.h"

namespace atb {
namespace {

std::string problem_with(const OpDef& op) {
  if (op.name.empty()) return "has no name";
  if (op.doc.empty()) return "has no documentation";
  if (!op.infer) return "has no shape rule";
  if (op.outputs.empty()) return "has no outputs";
  if (op.fused && !op.decompose) return "is fused but has no decomposition";
  if (!op.reference && !op.decompose) return "has neither a reference kernel nor a decomposition";
  for (size_t i = 0; i + 1 < op.inputs.size(); ++i) {
    if (op.inputs[i].variadic) return "has a variadic input that is not the last";
  }
  for (const AttrSpec& attr : op.attrs) {
    if (attr.name == "layer" || attr.name == "scope") return "has an attribute of a reserved name";
    if (!attr.required && attr_kind(attr.default_value) != attr.kind) return "has a default of another kind";
  }
  return {};
}

// Size of a value as stored, in bytes. A state counts nothing here: operators that touch one give their own rule.
Dim value_bytes(const Value& value) {
  const Type& type = value.type();
  if (type.encoding == nullptr) return num_elements(type.shape) * Dim(static_cast<int64_t>(dtype_size(type.dtype)));
  return Dim::floordiv(num_elements(type.shape), Dim(type.encoding->block_elems)) * Dim(type.encoding->block_bytes);
}

}  // namespace

void InferArgs::fail(const std::string& what) const {
  throw_error(Code::kInvalidArgument, "[", op.name, "] ", node_name, ": ", what);
}

void OpRegistry::add(OpDef op) {
  if (op.outputs.empty()) op.outputs.push_back({"out"});
  const std::string problem = problem_with(op);
  require(problem.empty(), Code::kInternal, "[ops] operator ", op.name, " ", problem);
  const std::string name = op.name;
  const bool fresh = ops_.emplace(name, std::make_unique<OpDef>(std::move(op))).second;
  require(fresh, Code::kInternal, "[ops] operator ", name, " is registered twice");
}

const OpDef* OpRegistry::find(std::string_view name) const {
  const auto it = ops_.find(name);
  return it == ops_.end() ? nullptr : it->second.get();
}

const OpDef& OpRegistry::get(std::string_view name) const {
  const OpDef* op = find(name);
  require(op != nullptr, Code::kNotFound, "[ops] there is no operator ", name, " in this build");
  return *op;
}

std::vector<const OpDef*> OpRegistry::all() const {
  std::vector<const OpDef*> result;
  for (const auto& [name, op] : ops_) result.push_back(op.get());
  return result;
}

Shape attr_dims(const Attrs& attrs) {
  Shape dims;
  for (const auto& [name, value] : attrs.items()) {
    const auto* shape = std::get_if<Shape>(&value);
    if (shape != nullptr) dims.insert(dims.end(), shape->begin(), shape->end());
  }
  return dims;
}

Dim node_bytes(const Node& node) {
  if (node.op().is_view()) return Dim(int64_t{0});
  if (node.op().bytes) return node.op().bytes(node);
  std::vector<const Value*> values(node.inputs().begin(), node.inputs().end());
  values.insert(values.end(), node.outputs().begin(), node.outputs().end());
  Dim sum;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto seen = values.begin() + static_cast<std::ptrdiff_t>(i);
    if (values[i] == nullptr || std::find(values.begin(), seen, values[i]) != seen) continue;  // read once
    sum = sum + value_bytes(*values[i]);
  }
  return sum;
}

Dim node_flops(const Node& node) {
  if (node.op().is_view()) return Dim(int64_t{0});
  if (node.op().flops) return node.op().flops(node);
  Dim sum;
  for (const Value* output : node.outputs()) {
    if (output->type().dtype != DType::kState) sum = sum + num_elements(output->shape());
  }
  return sum;
}

}  // namespace atb
