// SPDX-License-Identifier: Apache-2.0
// For operators whose kernels read constants by their bytes, as any other operand.
#pragma once

#include <algorithm>

#include "ir/graph.h"

namespace atb {

// True if no operand is a constant that has no plain elements in one piece (encoded, permuted, put together of
// several): kernels get no data for such.
inline bool plain_operands(const Node& node) {
  return std::all_of(node.inputs().begin(), node.inputs().end(), [](const Value* input) {
    return input == nullptr || !input->is_constant() || input->constant()->plain_bytes() != nullptr;
  });
}

}  // namespace atb
