// SPDX-License-Identifier: Apache-2.0
// Plants of AddNorm: add, then a norm of the sum over the last axis.
#include "fuzz/random_graphs/fusions.h"
#include "fuzz/random_graphs/operands.h"

namespace atb::random_graphs {

const std::vector<std::string> kAddNormFlaws = {
    "operand that broadcasts",
    "difference for a sum",
    "norm over another axis",
    "activation as weight",
};

namespace {

// Of [batch, tokens, width] also once passes read what broadcasts as it was before.
Value* whole_stream(Sketch& sketch, int64_t width) {
  Value* value = stream(sketch, width);
  const bool broadcasts = value->producer() != nullptr && value->producer()->is("broadcast");
  return broadcasts ? private_stream(sketch, width) : value;
}

// The second operand of the sum.
Value* sublayer(Sketch& sketch, std::string_view flaw, int64_t width) {
  if (flaw == "operand that broadcasts") return sketch.input(DType::kF32, {sketch.tokens(), Dim(width)});
  if (sketch.random().chance(0.1)) return sketch.input(DType::kF16, {sketch.batch(), sketch.tokens(), Dim(width)});
  if (sketch.random().chance(0.7)) {
    Value* x = stream(sketch, 5);
    return project(sketch, x, width, sketch.random().chance(0.5));
  }
  return whole_stream(sketch, width);
}

}  // namespace

Plant plant_add_norm(Sketch& sketch, std::string_view flaw) {
  const int64_t width = flaw == "norm over another axis"
                            ? 2 * sketch.random().between(2, 8)
                            : sketch.random().pick(std::vector<int64_t>{3, 4, 7, 8, 16, 17});
  std::vector<Value*> operands = {whole_stream(sketch, width), sublayer(sketch, flaw, width)};
  // The type of a sum is its first operand's.
  if (is_f32(*operands[1]) && sketch.random().chance(0.3)) std::swap(operands[0], operands[1]);
  Value* sum = sketch.value(flaw == "difference for a sum" ? "sub" : "add", operands);
  Plant plant{
      .pattern = "AddNorm", .flaw = std::string(flaw), .fires = flaw.empty(), .causal = {}, .live = {}, .returned = {}};
  Value* normed = nullptr;
  if (flaw == "norm over another axis") {
    Value* pairs = sketch.reshape(sum, {sum->dim(0), sum->dim(1), Dim(width / 2), Dim(2)});
    normed = norm(sketch, sketch.transpose(pairs, {0, 1, 3, 2}));
  } else if (flaw == "activation as weight") {
    normed = sketch.value("rms_norm", {sum, sketch.input(DType::kF32, {Dim(width)})}, {{"eps", 1e-3}});
  } else {
    normed = norm(sketch, sum);
  }
  if (sketch.random().chance(0.5)) sketch.offer(sum, {"rms_norm", "layer_norm"});
  sketch.offer(normed);
  plant.live = {normed};
  return plant;
}

}  // namespace atb::random_graphs
