// SPDX-License-Identifier: Apache-2.0
// CPU kernel of block_attention.
#pragma once

#include <cstddef>
#include <memory>

#include "ir/kernel.h"

namespace atb {

// Inputs of a block_attention node.
struct BlockAttentionInput {
  static constexpr size_t kQ = 0, kK = 1, kV = 2, kMask = 3, kFirstQuery = 4, kOutput = 5, kMax = 6, kSum = 7;
};

// Null unless all inputs are f32 (first_query i32) in plain memory.
std::unique_ptr<Kernel> make_block_attention_kernel(const KernelRequest& request);

}  // namespace atb
