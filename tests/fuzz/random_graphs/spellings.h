// SPDX-License-Identifier: Apache-2.0
// Norms, activations and linears as exported graphs spell them: chains of small operators that the canonical form
// raises to one.
#pragma once

#include "fuzz/random_graphs/sketch.h"

namespace atb::random_graphs {

// weight and bias [last extent], constant; bias may be null.
Value* spelled_rms_norm(Sketch& sketch, Value* x, Value* weight, double eps);
Value* spelled_layer_norm(Sketch& sketch, Value* x, Value* weight, Value* bias, double eps);
Value* spelled_silu(Sketch& sketch, Value* x);
// With constants of f32, so that the sketch's numbers are no longer exact.
Value* spelled_gelu(Sketch& sketch, Value* x, bool tanh);
// A product with a constant [features, width], then a sum; bias may be null.
Value* spelled_linear(Sketch& sketch, Value* x, int64_t width, Value* bias);

}  // namespace atb::random_graphs
