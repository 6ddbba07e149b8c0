// SPDX-License-Identifier: Apache-2.0
#include "fuzz/random_graphs/spellings.h"

#include <cmath>
#include <string>

#include "fuzz/random_graphs/operands.h"
#include "fuzz/random_graphs/operators.h"

namespace atb::random_graphs {
namespace {

// Either way round: sums and products are the same.
Value* either(Sketch& sketch, const char* op, Value* a, Value* b) {
  return sketch.random().chance(0.5) ? sketch.value(op, {a, b}) : sketch.value(op, {b, a});
}

Value* square(Sketch& sketch, Value* x) {
  return sketch.random().chance(0.5) ? sketch.value("mul", {x, x}) : sketch.value("pow", {x, sketch.scalar(2)});
}

Value* last_mean(Sketch& sketch, Value* x) {
  return sketch.value("mean", {x}, {{"axes", std::vector<int64_t>{-1}}, {"keep", true}});
}

// x / sqrt(mean(x^2) + eps).
Value* normalized(Sketch& sketch, Value* x, double eps) {
  Value* mean = last_mean(sketch, square(sketch, x));
  Value* sum = either(sketch, "add", mean, sketch.scalar(eps));
  if (sketch.random().chance(0.3)) return sketch.value("div", {x, sketch.value("sqrt", {sum})});
  return either(sketch, "mul", x, sketch.value("rsqrt", {sum}));
}

void norm_chain(Sketch& sketch) {
  Value* x = pick_or_null(sketch, offered_where(sketch, "rms_norm", has_features));
  if (x == nullptr) return;
  const int64_t width = x->dim(-1).constant();
  Value* weight = sketch.constant({width}, 0.25, 1);
  // 2^-10: a power of two is the same number in f32 and f64.
  if (sketch.random().chance(0.5)) return sketch.offer(spelled_rms_norm(sketch, x, weight, 0x1p-10));
  Value* bias = sketch.random().chance(0.5) ? sketch.constant({width}, 0.25) : nullptr;
  sketch.offer(spelled_layer_norm(sketch, x, weight, bias, 0x1p-10));
}

void silu_chain(Sketch& sketch) { sketch.offer(spelled_silu(sketch, any_float(sketch))); }

void gelu_chain(Sketch& sketch) {
  Value* x = any_float(sketch);
  sketch.offer(spelled_gelu(sketch, x, sketch.random().chance(0.5)));
}

void linear_chain(Sketch& sketch) {
  Value* x = pick_or_null(sketch, offered_where(sketch, "linear", has_features));
  if (x == nullptr || x->rank() < 2) return;
  const int64_t width = sketch.random().between(1, 9);
  sketch.offer(spelled_linear(sketch, x, width, sketch.random().chance(0.5) ? sketch.constant({width}, 0.5) : nullptr));
}

// Chains that are almost a norm: the mean of another axis, of the absolute value, of another value.
void almost_norm(Sketch& sketch) {
  Value* x = pick_or_null(sketch, offered_where(sketch, "rms_norm", has_features));
  if (x == nullptr || x->rank() < 2) return;
  Value* squares = square(sketch, sketch.random().chance(0.5) ? sketch.value("sin", {x}) : x);
  const int64_t axis = sketch.random().chance(0.7) ? -2 : -1;
  Value* mean = sketch.value("mean", {squares}, {{"axes", std::vector<int64_t>{axis}}, {"keep", true}});
  Value* root = sketch.value("rsqrt", {sketch.value("add", {mean, sketch.scalar(0.25)})});
  sketch.offer(
      sketch.value("mul", {sketch.value("mul", {x, root}), sketch.constant({x->dim(-1).constant()}, 0.25, 1)}));
}

// x times the sigmoid of another value: no SiLU.
void gated(Sketch& sketch) {
  Value* x = any_float(sketch);
  Value* y = partner(sketch, *x, 0);
  if (!is_f32(*y)) return;
  Value* out = sketch.value("mul", {x, sketch.value("sigmoid", {y})});
  if (fits(sketch, out->shape())) sketch.offer(out);
}

}  // namespace

Value* spelled_rms_norm(Sketch& sketch, Value* x, Value* weight, double eps) {
  return either(sketch, "mul", normalized(sketch, x, eps), weight);
}

Value* spelled_layer_norm(Sketch& sketch, Value* x, Value* weight, Value* bias, double eps) {
  Value* centred = sketch.value("sub", {x, last_mean(sketch, x)});
  Value* out = either(sketch, "mul", normalized(sketch, centred, eps), weight);
  return bias == nullptr ? out : either(sketch, "add", out, bias);
}

Value* spelled_silu(Sketch& sketch, Value* x) {
  if (sketch.random().chance(0.6)) return either(sketch, "mul", x, sketch.value("sigmoid", {x}));
  Value* grown = sketch.value("exp", {sketch.value("neg", {x})});
  return sketch.value("div", {x, either(sketch, "add", grown, sketch.scalar(1))});
}

Value* spelled_gelu(Sketch& sketch, Value* x, bool tanh) {
  sketch.expect_rounding();
  const auto scalar = [&](double value) { return sketch.scalar(static_cast<float>(value)); };
  Value* bent = nullptr;
  if (tanh) {
    Value* cube = sketch.value("pow", {x, scalar(3)});
    Value* inner = either(sketch, "add", x, either(sketch, "mul", cube, scalar(0.044715)));
    bent = sketch.value("tanh", {either(sketch, "mul", inner, scalar(std::sqrt(2 / M_PI)))});
  } else {
    bent = sketch.value("erf", {either(sketch, "mul", x, scalar(M_SQRT1_2))});
  }
  Value* factor = either(sketch, "add", bent, scalar(1));
  return either(sketch, "mul", either(sketch, "mul", x, scalar(0.5)), factor);
}

Value* spelled_linear(Sketch& sketch, Value* x, int64_t width, Value* bias) {
  const int64_t features = x->dim(-1).constant();
  const double scale = 1 / std::sqrt(static_cast<double>(features));
  const bool turned = sketch.random().chance(0.5);
  Value* weight = turned ? sketch.transpose(sketch.constant({width, features}, scale), {1, 0})
                         : sketch.constant({features, width}, scale);
  Value* out = sketch.value("matmul", {x, weight});
  return bias == nullptr ? out : either(sketch, "add", out, bias);
}

const std::vector<AddOperator>& spelled_operators() {
  static const std::vector<AddOperator> kinds = {norm_chain,   norm_chain,  silu_chain, gelu_chain,
                                                 linear_chain, almost_norm, gated};
  return kinds;
}

}  // namespace atb::random_graphs
