// SPDX-License-Identifier: Apache-2.0
#include "fuzz/random_graphs/operands.h"

#include <algorithm>

namespace atb::random_graphs {
namespace {

constexpr int64_t kMaxElements = 6000;
constexpr int kMaxAxes = 6;

}  // namespace

bool fits(const Sketch& sketch, const Shape& shape) {
  int64_t elements = 1;
  for (const Dim& dim : shape) elements *= std::max<int64_t>(1, sketch.extent(dim));
  return elements <= kMaxElements && static_cast<int>(shape.size()) <= kMaxAxes;
}

std::vector<Value*> offered_where(Sketch& sketch, std::string_view reader,
                                  const std::function<bool(const Value&)>& accepts) {
  std::vector<Value*> found;
  for (Value* value : sketch.offered()) {
    if (sketch.may_read(reader, value) && accepts(*value)) found.push_back(value);
  }
  return found;
}

Value* pick_or_null(Sketch& sketch, const std::vector<Value*>& values) {
  return values.empty() ? nullptr : sketch.random().pick(values);
}

bool is_f32(const Value& value) { return value.type().dtype == DType::kF32; }

bool has_features(const Value& value) { return is_f32(value) && value.rank() >= 1 && value.dim(-1).is_constant(); }

// numpy broadcasting, where it is proven.
bool broadcasts(const Shape& a, const Shape& b) {
  for (size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
    const Dim& x = a[a.size() - i];
    const Dim& y = b[b.size() - i];
    if (!(x == Dim(1)) && !(y == Dim(1)) && !(x == y)) return false;
  }
  return true;
}

// Some axes at the end of `like`, constant extents kept or 1.
std::vector<int64_t> trailing_shape(Sketch& sketch, const Value& like) {
  std::vector<int64_t> shape;
  const int64_t axes = sketch.random().below(like.rank() + 1);
  for (int64_t axis = like.rank() - axes; axis < like.rank(); ++axis) {
    const Dim& dim = like.dim(static_cast<int>(axis));
    shape.push_back(dim.is_constant() && sketch.random().chance(0.7) ? dim.constant() : 1);
  }
  return shape;
}

// Something that broadcasts with x: another value, an input (now and then of half precision), or a constant.
Value* partner(Sketch& sketch, const Value& x, double mean) {
  const double kind = sketch.random().unit();
  if (kind < 0.6) {
    const auto accepts = [&](const Value& v) { return is_f32(v) && broadcasts(v.shape(), x.shape()); };
    if (Value* found = pick_or_null(sketch, offered_where(sketch, "", accepts))) return found;
  }
  if (kind < 0.7) {
    Shape shape = x.shape();
    for (Dim& dim : shape) {
      if (sketch.random().chance(0.3)) dim = 1;
    }
    const double half = sketch.random().unit();
    return sketch.input(half < 0.2 ? DType::kF16 : half < 0.4 ? DType::kBF16 : DType::kF32, shape);
  }
  return sketch.constant(trailing_shape(sketch, x), 0.5, mean);
}

Value* any_float(Sketch& sketch, std::string_view reader) {
  if (Value* found = pick_or_null(sketch, offered_where(sketch, reader, is_f32))) return found;
  return sketch.input(DType::kF32, {sketch.batch(), sketch.tokens(), Dim(sketch.random().between(1, 9))});
}

}  // namespace atb::random_graphs
