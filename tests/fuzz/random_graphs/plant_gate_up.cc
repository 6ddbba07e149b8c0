// SPDX-License-Identifier: Apache-2.0
// Plants of GateUp: activation(linear) * linear on one input.
#include "fuzz/random_graphs/fusions.h"
#include "fuzz/random_graphs/spellings.h"

namespace atb::random_graphs {

const std::vector<std::string> kGateUpFlaws = {
    "gate read elsewhere", "activation read elsewhere", "up read elsewhere", "up of another input",
    "up of width 1",       "up weight in f16",          "up bias in f16",    "up weight shared",
    "weight not constant", "sum for a product",         "other activation",
};

namespace {

Value* activate(Sketch& sketch, std::string_view flaw, Value* gate) {
  if (flaw == "other activation") return sketch.value("softmax", {gate});
  const bool spelled = sketch.random().chance(0.3);
  switch (sketch.random().below(4)) {
    case 0:
      return spelled ? spelled_silu(sketch, gate) : sketch.value("silu", {gate});
    case 1:
      return spelled ? sketch.value("maximum", {gate, sketch.scalar(0)}) : sketch.value("relu", {gate});
    default: {
      if (spelled) return spelled_gelu(sketch, gate, sketch.random().chance(0.5));
      const std::string form = sketch.random().chance(0.5) ? "tanh" : "none";
      return sketch.value("gelu", {gate}, {{"approximate", form}});
    }
  }
}

Value* up_linear(Sketch& sketch, std::string_view flaw, Value* x, int64_t width, Plant& plant) {
  const int64_t features = x->dim(-1).constant();
  const DType dtype = flaw == "up weight in f16" ? DType::kF16 : DType::kF32;
  std::vector<Value*> inputs = {x, new_weight(sketch, flaw == "up of width 1" ? 1 : width, features, dtype)};
  if (flaw == "up of another input") inputs[0] = private_stream(sketch, features);
  if (flaw == "weight not constant") inputs[1] = sketch.input(DType::kF32, {Dim(width), Dim(features)});
  if (flaw == "up weight shared") {
    plant.live.push_back(sketch.value("linear", {private_stream(sketch, features), inputs[1]}));
  }
  if (flaw == "up bias in f16") {
    inputs.push_back(sketch.constant({width}, 0.5, 0, DType::kF16));
  } else if (sketch.random().chance(0.4) && flaw != "up of width 1") {
    inputs.push_back(sketch.constant({width}, 0.5));
  }
  return sketch.value("linear", inputs);
}

}  // namespace

Plant plant_gate_up(Sketch& sketch, std::string_view flaw) {
  Plant plant{
      .pattern = "GateUp", .flaw = std::string(flaw), .fires = flaw.empty(), .causal = {}, .live = {}, .returned = {}};
  const int64_t features = sketch.random().pick(std::vector<int64_t>{3, 8, 17});
  const int64_t width = sketch.random().pick(std::vector<int64_t>{5, 8, 16, 19});
  Value* x = stream(sketch, features);
  Value* gate = project(sketch, x, width, flaw == "up bias in f16" || sketch.random().chance(0.4));
  Value* active = activate(sketch, flaw, gate);
  Value* up = up_linear(sketch, flaw, x, width, plant);
  std::vector<Value*> factors = {active, up};
  if (sketch.random().chance(0.3)) std::swap(factors[0], factors[1]);
  Value* product = sketch.value(flaw == "sum for a product" ? "add" : "mul", factors);
  plant.live.push_back(product);
  if (flaw == "gate read elsewhere") plant.returned.push_back(gate);
  if (flaw == "activation read elsewhere") plant.returned.push_back(active);
  if (flaw == "up read elsewhere") plant.returned.push_back(up);
  sketch.offer(product);
  return plant;
}

}  // namespace atb::random_graphs
