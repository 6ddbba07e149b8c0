// SPDX-License-Identifier: Apache-2.0
#include "bindings/attrs.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "ir/schema.h"

namespace atb {
namespace {

namespace nb = nanobind;

nb::object shape_to_python(const Shape& shape) {
  nb::list extents;
  for (const Dim& extent : shape) extents.append(dim_to_python(extent));
  return extents;
}

Attr attr_from_python(nb::handle object, AttrKind kind, const std::string& where, const RangedDim& ranged) {
  switch (kind) {
    case AttrKind::kBool:
      return nb::cast<bool>(object);
    case AttrKind::kInt:
      return nb::cast<int64_t>(object);
    case AttrKind::kReal:
      return nb::cast<double>(object);
    case AttrKind::kText:
      return nb::cast<std::string>(object);
    case AttrKind::kInts:
      return nb::cast<std::vector<int64_t>>(object);
    case AttrKind::kReals:
      return nb::cast<std::vector<double>>(object);
    case AttrKind::kShape:
      break;
  }
  Shape shape;
  for (nb::handle extent : nb::cast<nb::sequence>(object)) {
    const Dim dim = dim_from_python(extent, where);
    shape.push_back(ranged ? ranged(dim) : dim);
  }
  return shape;
}

}  // namespace

nb::object attr_to_python(const Attr& attr) {
  return std::visit(
      [](const auto& value) -> nb::object {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Shape>) {
          return shape_to_python(value);
        } else {
          return nb::cast(value);
        }
      },
      attr);
}

nb::object dim_to_python(const Dim& dim) {
  return dim.is_constant() ? nb::object(nb::int_(dim.constant())) : nb::object(nb::str(dim.str().c_str()));
}

Dim dim_from_python(nb::handle object, const std::string& where) {
  if (nb::isinstance<nb::int_>(object)) return Dim(nb::cast<int64_t>(object));
  require(nb::isinstance<nb::str>(object), Code::kInvalidArgument, where, ": a dim must be an int or text, got ",
          nb::type_name(object.type()).c_str());
  return Dim::parse(nb::cast<std::string>(object));
}

Attrs attrs_from_python(const OpDef& op, const nb::dict& given, const std::string& where, const RangedDim& ranged) {
  return attrs_from_python(op.name, op.attrs, given, where, ranged);
}

Attrs attrs_from_python(std::string_view owner, std::span<const AttrSpec> specs, const nb::dict& given,
                        const std::string& where, const RangedDim& ranged) {
  Attrs attrs;
  for (const auto& [key, value] : given) {
    const std::string name = nb::cast<std::string>(key);
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const AttrSpec& s) { return s.name == name; });
    if (spec == specs.end()) {
      throw_error(Code::kInvalidArgument, where, " ", owner, " has no attribute ", name, "; it has ", names_of(specs));
    }
    try {
      attrs.set(name, attr_from_python(value, spec->kind, where, ranged));
    } catch (const nb::cast_error&) {
      throw_error(Code::kInvalidArgument, where, " ", owner, ": attribute ", name, " = ", nb::str(value).c_str(),
                  " is not of its kind, ", attr_kind_name(spec->kind));
    }
  }
  return attrs;
}

}  // namespace atb
