// SPDX-License-Identifier: Apache-2.0
// Plants of what is folded into a product: the norm before it, the activation or the residual behind it.
#include "fuzz/random_graphs/fusions.h"
#include "fuzz/random_graphs/spellings.h"

namespace atb::random_graphs {

const std::vector<std::string> kNormLinearFlaws = {
    "norm read elsewhere",
    "norm of a sum",
    "activation as weight of the norm",
    "weight not constant",
};

const std::vector<std::string> kLinearActivationFlaws = {
    "product read elsewhere",
    "other activation",
    "weight not constant",
};

const std::vector<std::string> kLinearResidualFlaws = {
    "product read elsewhere", "operand that broadcasts", "residual of another branch",
    "difference for a sum",   "weight not constant",
};

namespace {

int64_t some_width(Sketch& sketch) { return sketch.random().pick(std::vector<int64_t>{3, 5, 8, 16, 19}); }

Plant new_plant(const char* pattern, std::string_view flaw) {
  return {
      .pattern = pattern, .flaw = std::string(flaw), .fires = flaw.empty(), .causal = {}, .live = {}, .returned = {}};
}

Value* product(Sketch& sketch, std::string_view flaw, Value* x, int64_t width) {
  if (flaw != "weight not constant") return project(sketch, x, width, sketch.random().chance(0.5));
  return sketch.value("linear", {x, sketch.input(DType::kF32, {Dim(width), x->dim(-1)})});
}

Value* activated(Sketch& sketch, std::string_view flaw, Value* x) {
  if (flaw == "other activation") return sketch.value("tanh", {x});
  const bool spelled = sketch.random().chance(0.3);
  if (sketch.random().chance(0.3)) return spelled ? spelled_silu(sketch, x) : sketch.value("silu", {x});
  if (sketch.random().chance(0.3)) return sketch.value("relu", {x});
  const bool tanh = sketch.random().chance(0.5);
  if (spelled) return spelled_gelu(sketch, x, tanh);
  return sketch.value("gelu", {x}, {{"approximate", std::string(tanh ? "tanh" : "none")}});
}

}  // namespace

Plant plant_norm_linear(Sketch& sketch, std::string_view flaw) {
  Plant plant = new_plant("NormLinear", flaw);
  const int64_t width = some_width(sketch);
  // Inputs, as a stream may come with a product of a norm.
  const auto input = [&] { return sketch.input(DType::kF32, {sketch.batch(), sketch.tokens(), Dim(width)}); };
  Value* x = input();
  if (flaw == "norm of a sum") x = sketch.value("add", {x, input()});
  Value* normed = flaw == "activation as weight of the norm"
                      ? sketch.value("rms_norm", {x, sketch.input(DType::kF32, {Dim(width)})}, {{"eps", 1e-3}})
                      : norm(sketch, x);
  if (flaw == "norm read elsewhere") plant.returned.push_back(normed);
  Value* out = product(sketch, flaw, normed, some_width(sketch));
  sketch.offer(out);
  plant.live = {out};
  return plant;
}

Plant plant_linear_activation(Sketch& sketch, std::string_view flaw) {
  Plant plant = new_plant("LinearActivation", flaw);
  const int64_t width = some_width(sketch);
  Value* made = product(sketch, flaw, stream(sketch, some_width(sketch)), width);
  if (flaw == "product read elsewhere") plant.returned.push_back(made);
  Value* out = activated(sketch, flaw, made);
  sketch.offer(out, {"mul"});  // a gate, which GateUp takes
  plant.live = {out};
  return plant;
}

Plant plant_linear_residual(Sketch& sketch, std::string_view flaw) {
  Plant plant = new_plant("LinearResidual", flaw);
  const int64_t width = some_width(sketch);
  Value* residual = private_stream(sketch, width);
  Value* x = sketch.random().chance(0.5) ? residual : norm(sketch, residual);
  Value* made = product(sketch, flaw, x, width);
  if (flaw == "product read elsewhere") plant.returned.push_back(made);
  if (flaw == "operand that broadcasts") residual = sketch.input(DType::kF32, {sketch.tokens(), Dim(width)});
  if (flaw == "residual of another branch")
    residual = project(sketch, stream(sketch, some_width(sketch)), width, false);
  std::vector<Value*> operands = {made, residual};
  if (sketch.random().chance(0.5)) std::swap(operands[0], operands[1]);
  Value* out = sketch.value(flaw == "difference for a sum" ? "sub" : "add", operands);
  sketch.offer(out, {"rms_norm", "layer_norm", "linear"});  // a norm of the sum would go with it
  plant.live = {out};
  return plant;
}

}  // namespace atb::random_graphs
