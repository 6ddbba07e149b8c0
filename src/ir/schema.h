// SPDX-License-Identifier: Apache-2.0
// Checks of a call against its operator's schema: used when a node is made, re-inferred or verified.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"

namespace atb {

// Number of inputs, absent ones only where optional. Errors: kInvalidArgument.
void check_inputs(const OpDef& op, std::span<Value* const> inputs, std::string_view node_name);

// `attrs` with the schema's defaults for absent ones; integers are accepted for reals. kInvalidArgument for an unknown
// attribute, one of the wrong kind, or a required one that is absent.
Attrs complete_attrs(const OpDef& op, Attrs attrs, std::string_view node_name);
// The same for something else than an operator that has attributes; `owner` is its name, as "linear".
Attrs complete_attrs(std::string_view owner, std::span<const AttrSpec> specs, Attrs attrs, std::string_view name);

// Output types of a checked call. kInternal if the operator's rule gives an impossible number of them: as many as the
// schema has outputs, or one and more where the schema has a single output.
std::vector<Type> infer_types(const OpDef& op, std::span<Value* const> inputs, const Attrs& attrs,
                              std::string_view node_name);

std::string_view attr_kind_name(AttrKind kind);
// "eps, bias", or "none".
std::string names_of(std::span<const AttrSpec> specs);
AttrKind attr_kind(const Attr& attr);

}  // namespace atb
