// SPDX-License-Identifier: Apache-2.0
// What rms_norm, layer_norm and fused_add_norm share: the shape rule of their vectors, reference rows, the CPU kernel.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>

#include "ir/kernel.h"
#include "ops/infer_util.h"

namespace atb {

// x is float of rank >= 1 and its last extent H; the vectors that are present (weight, bias) are [H].
void require_norm_inputs(const InferArgs& args, size_t x, size_t weight, size_t bias);

// y = x / sqrt(mean(x^2) + eps) * w
template <class T>
void rms_norm_row(const T* x, const T* weight, double eps, int64_t n, T* out) {
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const T scale = T(1) / std::sqrt(sum / static_cast<T>(n) + static_cast<T>(eps));
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

// y = (x - mean) / sqrt(variance + eps) * w + b; weight and bias may be null.
template <class T>
void layer_norm_row(const T* x, const T* weight, const T* bias, double eps, int64_t n, T* out) {
  T mean = 0;
  for (int64_t i = 0; i < n; ++i) mean += x[i];
  mean /= static_cast<T>(n);
  T variance = 0;
  for (int64_t i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const T scale = T(1) / std::sqrt(variance / static_cast<T>(n) + static_cast<T>(eps));
  for (int64_t i = 0; i < n; ++i) {
    T value = (x[i] - mean) * scale;
    if (weight != nullptr) value *= weight[i];
    if (bias != nullptr) value += bias[i];
    out[i] = value;
  }
}

// Which inputs and outputs of a node are what; -1 for none.
struct NormOperands {
  int x = 0;
  int weight = 1;
  int bias = -1;
  int residual = -1;   // sum = residual + x is normed, and is output 1
  bool layer = false;  // layer norm, else rms norm
};

// A weight or bias: constant (decoded once), an activation of the step, or absent.
struct NormVector {
  std::shared_ptr<const float> constant;
  int input = -1;

  const float* data(const Call& call) const noexcept {
    if (constant != nullptr) return constant.get();
    return input < 0 ? nullptr : call.inputs[static_cast<size_t>(input)].as<const float>();
  }
};
// Of input `input` of a node; absent where that is -1 or absent.
NormVector make_norm_vector(const KernelRequest& request, int input);

// One unit a row. Null unless all of it is f32.
std::unique_ptr<Kernel> make_norm_kernel(const KernelRequest& request, const NormOperands& operands);

}  // namespace atb
