// SPDX-License-Identifier: Apache-2.0
// The fusions planted in random graphs: whole, in many spellings, and with one flaw that must stop them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/random_graphs/sketch.h"

namespace atb::random_graphs {

// A fusion that was planted, and what the optimizer should make of it.
struct Plant {
  std::string pattern;           // as reports name it
  std::string flaw;              // empty: whole
  int layer = -1;                // its nodes have this layer, and no other plant's
  bool fires = true;             // an explicit mask is a flaw for causality only
  std::optional<bool> causal;    // of the attention that replaces it, where that is known
  std::vector<Value*> live;      // what must be computed for all this to hold
  std::vector<Value*> returned;  // what the graph must return: values that are read elsewhere
};

// One kind of plant. `flaw` is empty or one of `flaws`.
struct PlantKind {
  const char* pattern;
  std::vector<std::string> flaws;
  Plant (*plant)(Sketch& sketch, std::string_view flaw);
};

Plant plant_qkv_rope(Sketch& sketch, std::string_view flaw);
Plant plant_sdpa(Sketch& sketch, std::string_view flaw);
Plant plant_gate_up(Sketch& sketch, std::string_view flaw);
Plant plant_add_norm(Sketch& sketch, std::string_view flaw);
Plant plant_norm_linear(Sketch& sketch, std::string_view flaw);
Plant plant_linear_activation(Sketch& sketch, std::string_view flaw);
Plant plant_linear_residual(Sketch& sketch, std::string_view flaw);

extern const std::vector<std::string> kQkvRopeFlaws;
extern const std::vector<std::string> kSdpaFlaws;
extern const std::vector<std::string> kGateUpFlaws;
extern const std::vector<std::string> kAddNormFlaws;
extern const std::vector<std::string> kNormLinearFlaws;
extern const std::vector<std::string> kLinearActivationFlaws;
extern const std::vector<std::string> kLinearResidualFlaws;

const std::vector<PlantKind>& plant_kinds();

// A value [batch, tokens, width]: one that is offered, a linear of one, or an input.
Value* stream(Sketch& sketch, int64_t width);
// A new value of the shape of stream(width) that no operator but the caller's reads.
Value* private_stream(Sketch& sketch, int64_t width);
// x times a new weight [width, last extent of x] in `dtype`, with a bias where wanted.
Value* project(Sketch& sketch, Value* x, int64_t width, bool bias, DType dtype = DType::kF32);
Value* new_weight(Sketch& sketch, int64_t rows, int64_t columns, DType dtype = DType::kF32);
// rms_norm or layer_norm with weights that are constant, as one operator or (where `spelled`) now and then as a chain.
Value* norm(Sketch& sketch, Value* x, bool spelled = true);

}  // namespace atb::random_graphs
