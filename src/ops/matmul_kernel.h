// SPDX-License-Identifier: Apache-2.0
// The CPU kernel of products with a constant weight: linear, merged_matmul, fused_linear and fused_gate_up.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ir/kernel.h"
#include "kernels/store_panel.h"
#include "ops/norm_util.h"

namespace atb {

// What a node makes of x (input 0), w [N, K] (input 1) and an optional bias (input 2):
// act(norm(x) w^T + bias) + residual.
struct MatmulOutputs {
  // Features of each output, in order; their sum is N. Gated: one entry F, N = 2 F, gate rows first.
  std::vector<int64_t> splits;
  Activation activation = Activation::kNone;
  bool gated = false;                // act(gate) * up
  std::optional<NormOperands> norm;  // of x, with the node's eps
  int residual = -1;                 // input of the type of the only output; -1: none
};

// Packs the weight (at once) into panels of 16 features. Units are panels for few rows and (rows x panels) tiles for
// many. Bits are those of norm, product, activation and sum as operators of their own. Null where there is no such
// kernel: weight, bias or vectors of the norm not constant, activations not f32, a format without kernel.
std::unique_ptr<Kernel> make_matmul_kernel(const KernelRequest& request, const MatmulOutputs& outputs);

}  // namespace atb
