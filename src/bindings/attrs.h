// SPDX-License-Identifier: Apache-2.0
// Attributes of nodes as Python objects, and back.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "ir/op.h"

namespace atb {

// bool, int, float, str, list of int or float. A shape is a list of ints, and of texts ("2*T + 1") where it has
// symbols.
nanobind::object attr_to_python(const Attr& attr);

// The inverse for an attribute of this kind; `what` names it in errors. kInvalidArgument for another kind of object.
Attr attr_from_python(nanobind::handle object, AttrKind kind, const std::string& what);

// Attributes of `op` from a dict. kInvalidArgument for a name that the operator does not have.
Attrs attrs_from_python(const OpDef& op, const nanobind::dict& given, const std::string& where);

}  // namespace atb
