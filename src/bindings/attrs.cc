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
  for (const Dim& extent : shape) {
    if (extent.is_constant()) {
      extents.append(extent.constant());
    } else {
      extents.append(extent.str());
    }
  }
  return extents;
}

Shape shape_from_python(nb::handle object) {
  Shape shape;
  for (nb::handle extent : object) {
    shape.push_back(nb::isinstance<nb::str>(extent) ? Dim::parse(nb::cast<std::string>(extent))
                                                    : Dim(nb::cast<int64_t>(extent)));
  }
  return shape;
}

}  // namespace

nb::object attr_to_python(const Attr& attr) {
  if (const auto* shape = std::get_if<Shape>(&attr)) return shape_to_python(*shape);
  return std::visit(
      [](const auto& value) -> nb::object {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Shape>) {
          return nb::none();  // above
        } else {
          return nb::cast(value);
        }
      },
      attr);
}

Attr attr_from_python(nb::handle object, AttrKind kind, const std::string& what) {
  try {
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
        return shape_from_python(object);
    }
  } catch (const nb::cast_error&) {
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;  // no sequence where a shape is wanted
  }
  throw_error(Code::kInvalidArgument, what, ": is a ", nb::type_name(object.type()).c_str(), ", must be of kind ",
              attr_kind_name(kind));
}

Attrs attrs_from_python(const OpDef& op, const nb::dict& given, const std::string& where) {
  Attrs attrs;
  for (const auto& [key, value] : given) {
    const std::string name = nb::cast<std::string>(key);
    const auto spec = std::find_if(op.attrs.begin(), op.attrs.end(), [&](const AttrSpec& s) { return s.name == name; });
    require(spec != op.attrs.end(), Code::kInvalidArgument, where, ": ", op.name, " has no attribute ", name);
    attrs.set(name, attr_from_python(value, spec->kind, where + ": attribute " + name));
  }
  return attrs;
}

}  // namespace atb
