// SPDX-License-Identifier: Apache-2.0
// Checks of a call against its operator's schema.
#include "ir/schema.h"

#include <algorithm>
#include <array>

namespace atb {
namespace {

constexpr std::array<std::string_view, 7> kKindNames = {"bool", "int", "real", "text", "ints", "reals", "shape"};

std::string input_names(const OpDef& op) {
  std::string names;
  for (const InputSpec& spec : op.inputs) {
    names += (names.empty() ? "" : ", ") + spec.name + (spec.variadic ? "..." : spec.optional ? "?" : "");
  }
  return names;
}

// Integers stand for reals, and integer lists for lists of reals or shapes.
Attr coerce(Attr attr, AttrKind wanted) {
  if (const auto* integer = std::get_if<int64_t>(&attr); integer != nullptr && wanted == AttrKind::kReal) {
    return static_cast<double>(*integer);
  }
  if (const auto* integers = std::get_if<std::vector<int64_t>>(&attr)) {
    if (wanted == AttrKind::kReals) return std::vector<double>(integers->begin(), integers->end());
    if (wanted == AttrKind::kShape) return Shape(integers->begin(), integers->end());
  }
  return attr;
}

}  // namespace

std::string names_of(std::span<const AttrSpec> specs) {
  std::string names;
  for (const AttrSpec& spec : specs) names += (names.empty() ? "" : ", ") + spec.name;
  return names.empty() ? "none" : names;
}

std::string_view attr_kind_name(AttrKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

// The alternatives of Attr stand in the order of AttrKind.
AttrKind attr_kind(const Attr& attr) { return static_cast<AttrKind>(attr.index()); }

void check_inputs(const OpDef& op, std::span<Value* const> inputs, std::string_view node_name) {
  const auto fail = [&](const auto&... what) {
    throw_error(Code::kInvalidArgument, "[", op.name, "] ", node_name, ": ", what..., "; inputs are (", input_names(op),
                ")");
  };
  const bool variadic = !op.inputs.empty() && op.inputs.back().variadic;
  if (!variadic && inputs.size() > op.inputs.size()) fail(inputs.size(), " inputs");
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const InputSpec& spec = op.inputs[i];
    if (!spec.optional && !spec.variadic && (i >= inputs.size() || inputs[i] == nullptr)) {
      fail("input ", spec.name, " is missing");
    }
  }
  for (size_t i = op.inputs.size() - (variadic ? 1 : 0); i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) fail("input ", i, " is missing");
  }
}

Attrs complete_attrs(const OpDef& op, Attrs attrs, std::string_view node_name) {
  return complete_attrs(op.name, op.attrs, std::move(attrs), node_name);
}

Attrs complete_attrs(std::string_view owner, std::span<const AttrSpec> specs, Attrs attrs, std::string_view where) {
  const auto fail = [&](const auto&... what) {
    throw_error(Code::kInvalidArgument, "[", owner, "] ", where, ": attribute ", what...);
  };
  Attrs complete;
  for (const auto& item : attrs.items()) {  // clang before 16 does not capture structured bindings
    const std::string& name = item.first;
    const Attr& value = item.second;
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const AttrSpec& s) { return s.name == name; });
    if (spec == specs.end()) fail(name, ": there is none of that name; it has ", names_of(specs));
    Attr coerced = coerce(value, spec->kind);
    if (attr_kind(coerced) != spec->kind) {
      fail(name, ": is of kind ", attr_kind_name(attr_kind(value)), ", must be ", attr_kind_name(spec->kind));
    }
    complete.set(name, std::move(coerced));
  }
  for (const AttrSpec& spec : specs) {
    if (complete.has(spec.name)) continue;
    if (spec.required) fail(spec.name, " is missing (kind ", attr_kind_name(spec.kind), ")");
    complete.set(spec.name, spec.default_value);
  }
  return complete;
}

std::vector<Type> infer_types(const OpDef& op, std::span<Value* const> inputs, const Attrs& attrs,
                              std::string_view node_name) {
  std::vector<Type> types = op.infer({op, inputs, attrs, node_name});
  const bool fits = op.outputs.size() == 1 ? !types.empty() : types.size() == op.outputs.size();
  require(fits, Code::kInternal, "[", op.name, "] ", node_name, ": its shape rule gives ", types.size(),
          " outputs, its schema has ", op.outputs.size());
  return types;
}

}  // namespace atb
