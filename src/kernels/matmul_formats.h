// SPDX-License-Identifier: Apache-2.0
// One function a weight format: its table for exact or for quantized activations. Each has a file of its own.
#pragma once

#include "kernels/matmul.h"

namespace atb {

MatmulFormat matmul_f32();
MatmulFormat matmul_f16();
MatmulFormat matmul_bf16();
MatmulFormat matmul_q8_0(bool int8);
MatmulFormat matmul_q4_0(bool int8);
MatmulFormat matmul_q4_1(bool int8);

}  // namespace atb
