// SPDX-License-Identifier: Apache-2.0
// Attributes of nodes as Python objects, and back.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "ir/op.h"

namespace atb {

// bool, int, float, str, list of int or float. A shape is a list of ints, and of texts ("2*T + 1") where it has
// symbols.
nanobind::object attr_to_python(const Attr& attr);

// A dim: an int, or text over symbols.
nanobind::object dim_to_python(const Dim& dim);
Dim dim_from_python(nanobind::handle object, const std::string& where);

// Gives the symbols of a dim their ranges.
using RangedDim = std::function<Dim(const Dim&)>;

// Attributes of `op` from a dict, `where` starts errors: kInvalidArgument for a name that the operator does not have,
// or for an object that is not of the attribute's kind.
Attrs attrs_from_python(const OpDef& op, const nanobind::dict& given, const std::string& where,
                        const RangedDim& ranged = nullptr);
// The same for something else than an operator that has attributes.
Attrs attrs_from_python(std::string_view owner, std::span<const AttrSpec> specs, const nanobind::dict& given,
                        const std::string& where, const RangedDim& ranged = nullptr);

}  // namespace atb
