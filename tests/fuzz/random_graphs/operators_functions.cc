// SPDX-License-Identifier: Apache-2.0
// Random elementwise functions and comparisons of floats.
#include <string>

#include "fuzz/random_graphs/operands.h"
#include "fuzz/random_graphs/operators.h"

namespace atb::random_graphs {
namespace {

void function(Sketch& sketch) {
  static const std::vector<std::string> names = {"neg", "abs", "sin", "cos", "tanh", "sigmoid", "erf"};
  const std::string& name = sketch.random().pick(names);
  sketch.offer(sketch.value(name, {any_float(sketch)}));
}

void exponential(Sketch& sketch) {
  Value* x = sketch.value("mul", {any_float(sketch), sketch.scalar(0.25)});
  sketch.offer(sketch.value("exp", {x}));
}

// Functions of positive numbers.
void of_positive(Sketch& sketch) {
  static const std::vector<std::string> names = {"log", "sqrt", "rsqrt", "reciprocal"};
  Value* positive = sketch.value("add", {sketch.value("abs", {any_float(sketch)}), sketch.scalar(0.5)});
  if (sketch.random().chance(0.7)) return sketch.offer(sketch.value(sketch.random().pick(names), {positive}));
  static const std::vector<double> exponents = {2, 3, 0.5, -0.5, -1, 1, 1.5, 0};
  sketch.offer(sketch.value("pow", {positive, sketch.scalar(sketch.random().pick(exponents))}));
}

void square(Sketch& sketch) { sketch.offer(sketch.value("pow", {any_float(sketch), sketch.scalar(2)})); }

void larger_or_smaller(Sketch& sketch) {
  Value* a = any_float(sketch);
  Value* b = partner(sketch, *a, 0);
  if (!is_f32(*b)) return;
  Value* out = sketch.value(sketch.random().chance(0.5) ? "maximum" : "minimum", {a, b});
  if (fits(sketch, out->shape())) sketch.offer(out);
}

void division_with_rest(Sketch& sketch) {
  static const std::vector<double> divisors = {0.75, 1.25, -1.5, 2};
  Value* by = sketch.scalar(sketch.random().pick(divisors));
  const char* op = sketch.random().chance(0.5) ? "floor_divide" : "remainder";
  sketch.offer(sketch.value(op, {any_float(sketch), by}));
}

// Comparisons, and what they choose.
void comparison(Sketch& sketch) {
  Value* a = any_float(sketch);
  Value* b = partner(sketch, *a, 0);
  Value* holds = sketch.value(sketch.random().chance(0.8) ? "less" : "equal", {a, b});
  if (!fits(sketch, holds->shape())) return;
  sketch.offer(holds);
  if (!sketch.sound(holds)) return;
  Value* out = sketch.value("where", {holds, a, sketch.scalar(0.5)});
  sketch.offer(out);
}

}  // namespace

const std::vector<AddOperator>& function_operators() {
  static const std::vector<AddOperator> kinds = {function,          function,           exponential,
                                                 of_positive,       of_positive,        square,
                                                 larger_or_smaller, division_with_rest, comparison};
  return kinds;
}

}  // namespace atb::random_graphs
