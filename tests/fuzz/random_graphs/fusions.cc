// SPDX-License-Identifier: Apache-2.0
// What the plants share, and the list of them.
#include "fuzz/random_graphs/fusions.h"

#include <cmath>

#include "fuzz/random_graphs/spellings.h"

namespace atb::random_graphs {

const std::vector<PlantKind>& plant_kinds() {
  static const std::vector<PlantKind> kinds = {
      {"QKV+RoPE", kQkvRopeFlaws, plant_qkv_rope},
      {"SDPA", kSdpaFlaws, plant_sdpa},
      {"GateUp", kGateUpFlaws, plant_gate_up},
      {"AddNorm", kAddNormFlaws, plant_add_norm},
      {"NormLinear", kNormLinearFlaws, plant_norm_linear},
      {"LinearActivation", kLinearActivationFlaws, plant_linear_activation},
      {"LinearResidual", kLinearResidualFlaws, plant_linear_residual},
  };
  return kinds;
}

Value* new_weight(Sketch& sketch, int64_t rows, int64_t columns, DType dtype) {
  return sketch.constant({rows, columns}, 1 / std::sqrt(static_cast<double>(columns)), 0, dtype);
}

Value* project(Sketch& sketch, Value* x, int64_t width, bool bias, DType dtype) {
  if (dtype == DType::kF32 && x->rank() >= 2 && sketch.random().chance(0.2)) {
    return spelled_linear(sketch, x, width, bias ? sketch.constant({width}, 0.5) : nullptr);
  }
  std::vector<Value*> inputs = {x, new_weight(sketch, width, x->dim(-1).constant(), dtype)};
  if (bias) inputs.push_back(sketch.constant({width}, 0.5));
  return sketch.value("linear", inputs);
}

Value* stream(Sketch& sketch, int64_t width) {
  const Shape tokens = {sketch.batch(), sketch.tokens()};
  std::vector<Value*> fitting;
  std::vector<Value*> others;
  for (Value* value : sketch.offered()) {
    const bool on_tokens = value->rank() == 3 && Shape{value->dim(0), value->dim(1)} == tokens;
    if (!on_tokens || !value->dim(2).is_constant() || value->type().dtype != DType::kF32 ||
        !sketch.may_read("linear", value))
      continue;
    (value->dim(2) == Dim(width) ? fitting : others).push_back(value);
  }
  if (!fitting.empty() && sketch.random().chance(0.7)) return sketch.random().pick(fitting);
  if (!others.empty() && sketch.random().chance(0.8)) {
    Value* other = sketch.random().pick(others);
    return project(sketch, other, width, sketch.random().chance(0.3));
  }
  return sketch.input(DType::kF32, {sketch.batch(), sketch.tokens(), Dim(width)});
}

Value* private_stream(Sketch& sketch, int64_t width) {
  Value* x = stream(sketch, width);
  if (sketch.random().chance(0.5)) return norm(sketch, x);
  return sketch.value("mul", {x, sketch.constant({width}, 0.25, 1)});
}

Value* norm(Sketch& sketch, Value* x, bool spelled) {
  const int64_t width = x->dim(-1).constant();
  Value* weight = sketch.constant({width}, 0.25, 1);
  const double eps = sketch.random().chance(0.5) ? 0x1p-17 : 0x1p-7;
  const bool chain = spelled && sketch.random().chance(0.3);
  if (sketch.random().chance(0.5)) {
    if (chain) return spelled_rms_norm(sketch, x, weight, eps);
    return sketch.value("rms_norm", {x, weight}, {{"eps", eps}});
  }
  Value* bias = sketch.random().chance(0.5) ? sketch.constant({width}, 0.25) : nullptr;
  if (chain) return spelled_layer_norm(sketch, x, weight, bias, eps);
  if (bias == nullptr) return sketch.value("layer_norm", {x, weight}, {{"eps", eps}});
  return sketch.value("layer_norm", {x, weight, bias}, {{"eps", eps}});
}

}  // namespace atb::random_graphs
