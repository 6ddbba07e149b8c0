// SPDX-License-Identifier: Apache-2.0
// The definitions of the activations, for reference kernels (f32 and f64).
#pragma once

#include <cmath>

namespace atb {

template <class T>
T silu(T x) {
  return x / (T(1) + std::exp(-x));
}

template <class T>
T relu(T x) {
  return x < T(0) ? T(0) : x;  // NaN stays NaN
}

template <class T>
T gelu_erf(T x) {
  return x * T(0.5) * (T(1) + std::erf(x * T(0.70710678118654752440)));  // 1 / sqrt(2)
}

template <class T>
T gelu_tanh(T x) {
  return x * T(0.5) * (T(1) + std::tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));  // sqrt(2 / pi)
}

}  // namespace atb
