// SPDX-License-Identifier: Apache-2.0
// Gives a kernel dense rows of operands whose last axis is strided.
#pragma once

#include <memory>

#include "ir/kernel.h"

namespace atb {

// Kernels take strides on every axis but the last. Where an operand of `node` may come with a strided last axis (a
// transpose has moved it, or it is a graph input or a view of one and `strided_inputs` holds), the kernel is wrapped:
// such operands are copied into scratch first, in a phase of its own. The copies cost nothing in calls whose rows are
// dense, and the bits are those of contiguous operands. Other kernels come back as they are.
std::unique_ptr<Kernel> with_dense_rows(std::unique_ptr<Kernel> kernel, const Node& node, bool strided_inputs);

}  // namespace atb
