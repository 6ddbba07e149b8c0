// SPDX-License-Identifier: Apache-2.0
// Items that join values elementwise.
#pragma once

#include <string>

#include "blocks/item.h"

namespace atb {

// An item of kind `op`, which is the operator too: of all values of the item before and, where given, of the result
// named by its attribute "source".
void register_join(ItemRegistry& registry, const std::string& op, const std::string& result);

// a <op> b, elementwise: kInvalidArgument unless both are floats of one shape.
Value* join(const ItemCall& call, const std::string& op, Value* a, Value* b);

}  // namespace atb
