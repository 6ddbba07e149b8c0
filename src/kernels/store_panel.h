// SPDX-License-Identifier: Apache-2.0
// The last step of a matrix product: finished sums of a panel become rows of the output.
#pragma once

#include <cstdint>

namespace atb {

enum class Activation { kNone, kSilu, kGeluErf, kGeluTanh, kRelu };

// For lanes 0 .. count - 1 (count <= 16) of each row, each step rounded:
//   out = act(c + bias) + residual, or where `up` is there: out = act(c + bias) * (up + up_bias)
// Biases and residual may be null. `residual` may be `out`: each element is read before it is written.
struct StoreArgs {
  const float* c;
  const float* up;
  int64_t c_stride;  // of both
  int64_t rows;
  const float* bias;
  const float* up_bias;
  Activation activation;
  const float* residual;  // not with up
  int64_t residual_stride;
  float* out;
  int64_t out_stride;
  int64_t count;
};
void store_panel(const StoreArgs& args);

}  // namespace atb
