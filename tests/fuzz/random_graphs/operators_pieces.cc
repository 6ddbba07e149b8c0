// SPDX-License-Identifier: Apache-2.0
// Random slices, concatenations, broadcasts and reductions.
#include <algorithm>
#include <string>
#include <string_view>

#include "fuzz/random_graphs/operands.h"
#include "fuzz/random_graphs/operators.h"

namespace atb::random_graphs {
namespace {

bool has_axes(const Value& value) { return is_f32(value) && value.rank() >= 1; }

Value* with_axes(Sketch& sketch, std::string_view reader = "") {
  return pick_or_null(sketch, offered_where(sketch, reader, has_axes));
}

// Bounds that hold for every extent of the axis, never empty.
Shape draw_bounds(Sketch& sketch, const Dim& extent) {
  Prng& random = sketch.random();
  if (extent.is_constant()) {
    const int64_t begin = random.below(extent.constant());
    return {Dim(begin), Dim(random.between(begin + 1, extent.constant()))};
  }
  switch (random.below(4)) {
    case 0:
      return {extent - Dim(1), extent};
    case 1:
      return {Dim(0), Dim::floordiv(extent + Dim(1), Dim(2))};
    case 2:
      return {Dim(0), Dim(1)};
    default:
      return {Dim(0), extent};
  }
}

void slice(Sketch& sketch) {
  Value* x = with_axes(sketch, "slice");
  if (x == nullptr) return;
  const int64_t axis = sketch.random().below(x->rank());
  const Dim& extent = x->dim(static_cast<int>(axis));
  if (extent.lower() < 1) return;
  const int64_t step = sketch.random().chance(0.7) ? 1 : sketch.random().between(2, 3);
  const int64_t spelled = sketch.random().chance(0.3) ? axis - x->rank() : axis;
  sketch.offer(
      sketch.value("slice", {x}, {{"axis", spelled}, {"bounds", draw_bounds(sketch, extent)}, {"step", step}}));
}

// x with itself, a function of itself, or a constant; or its parts put together again.
void concat(Sketch& sketch) {
  Value* x = with_axes(sketch, "slice");
  if (x == nullptr) return;
  const int64_t axis = sketch.random().below(x->rank());
  const Dim extent = x->dim(static_cast<int>(axis));
  std::vector<Value*> parts = {x};
  if (extent.is_constant() && extent.constant() >= 2 && sketch.random().chance(0.5)) {
    const int64_t middle = sketch.random().between(1, extent.constant() - 1);
    const auto part = [&](int64_t begin, int64_t end) {
      return sketch.value("slice", {x}, {{"axis", axis}, {"bounds", Shape{Dim(begin), Dim(end)}}});
    };
    parts = {part(0, middle), part(middle, extent.constant())};
    if (sketch.random().chance(0.6)) std::swap(parts[0], parts[1]);
    if (sketch.random().chance(0.4)) parts[0] = sketch.value("neg", {parts[0]});
  } else {
    parts.push_back(sketch.random().chance(0.5) ? sketch.value("sin", {x}) : sketch.input(DType::kF32, x->shape()));
  }
  Value* out = sketch.value("concat", parts, {{"axis", axis}});
  if (fits(sketch, out->shape())) sketch.offer(out);
}

void broadcast(Sketch& sketch) {
  Value* x = any_float(sketch);
  Shape shape = x->shape();
  for (Dim& dim : shape) {
    if (dim == Dim(1) && sketch.random().chance(0.7)) dim = sketch.random().chance(0.5) ? Dim(3) : sketch.tokens();
  }
  if (sketch.random().chance(0.5)) shape.insert(shape.begin(), Dim(sketch.random().between(1, 3)));
  if (!fits(sketch, shape)) return;
  Value* wide = sketch.value("broadcast", {x}, {{"shape", shape}});
  sketch.offer(wide);
  if (sketch.random().chance(0.5))
    sketch.offer(sketch.value("mul", {wide, sketch.constant(trailing_shape(sketch, *wide))}));
}

void reduction(Sketch& sketch) {
  Value* x = with_axes(sketch);
  if (x == nullptr) return;
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis < x->rank(); ++axis) {
    if (sketch.random().chance(0.5)) axes.push_back(sketch.random().chance(0.3) ? axis - x->rank() : axis);
  }
  static const std::vector<std::string> names = {"sum", "mean", "max"};
  const std::string op = sketch.random().pick(names);
  Value* out = sketch.value(op, {x}, {{"axes", axes}, {"keep", sketch.random().chance(0.5)}});
  sketch.offer(out);
  if (op != "sum" && broadcasts(out->shape(), x->shape())) sketch.offer(sketch.value("sub", {x, out}));
}

void cumsum(Sketch& sketch) {
  Value* x = with_axes(sketch);
  if (x != nullptr) sketch.offer(sketch.value("cumsum", {x}, {{"axis", sketch.random().below(x->rank())}}));
}

}  // namespace

const std::vector<AddOperator>& piece_operators() {
  static const std::vector<AddOperator> kinds = {slice, slice, concat, concat, broadcast, reduction, reduction, cumsum};
  return kinds;
}

}  // namespace atb::random_graphs
