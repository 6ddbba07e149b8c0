// SPDX-License-Identifier: Apache-2.0
// The CPU kernel of products with a constant weight: linear, merged_matmul and fused_gate_up.
#pragma once

#include <memory>
#include <vector>

#include "ir/kernel.h"
#include "kernels/matmul.h"

namespace atb {

// What becomes of the output features of the node's weight [N, K] (input 1; x is input 0, an optional bias input 2).
struct MatmulOutputs {
  // Features of each output, in order; their sum is N. With an activation: one entry F, N = 2 F, gate rows first.
  std::vector<int64_t> splits;
  Activation activation = Activation::kNone;
};

// Packs the weight (at once) into panels of 16 features. Units are panels for few rows and (rows x panels) tiles for
// many. Null where there is no such kernel: weight or bias not constant, activations not f32, a format without kernel.
std::unique_ptr<Kernel> make_matmul_kernel(const KernelRequest& request, const MatmulOutputs& outputs);

}  // namespace atb
