// SPDX-License-Identifier: Apache-2.0
// Random integers and booleans: arithmetic, connectives, casts, and indices into floats.
#include <string>

#include "fuzz/random_graphs/operands.h"
#include "fuzz/random_graphs/operators.h"

namespace atb::random_graphs {
namespace {

bool is_integer(const Value& value) { return value.type().dtype == DType::kI32 || value.type().dtype == DType::kI64; }
bool is_bool(const Value& value) { return value.type().dtype == DType::kBool; }

Value* any_integer(Sketch& sketch) {
  Value* found = pick_or_null(sketch, offered_where(sketch, "", is_integer));
  if (found != nullptr && sketch.random().chance(0.7)) return found;
  if (sketch.random().chance(0.5)) return sketch.value("iota", {}, {{"shape", Shape{sketch.tokens()}}});
  return sketch.input(sketch.random().chance(0.5) ? DType::kI32 : DType::kI64, {sketch.batch(), sketch.tokens()});
}

Value* any_bool(Sketch& sketch) {
  Value* found = pick_or_null(sketch, offered_where(sketch, "", is_bool));
  if (found != nullptr && sketch.random().chance(0.8)) return found;
  if (sketch.random().chance(0.3)) return sketch.input(DType::kBool, {sketch.batch(), sketch.tokens()});
  Value* x = any_integer(sketch);
  const char* op = sketch.random().chance(0.5) ? "less" : "equal";
  const auto limit = static_cast<double>(sketch.random().below(kIds));
  return sketch.value(op, {x, sketch.numbers({}, {limit}, x->type().dtype)});
}

Value* cast(Sketch& sketch, Value* x, const std::string& dtype) {
  return sketch.value("cast", {x}, {{"dtype", dtype}});
}

void arithmetic(Sketch& sketch) {
  Value* a = any_integer(sketch);
  static const std::vector<std::string> names = {"add",     "sub",     "mul", "floor_divide", "remainder",
                                                 "maximum", "minimum", "neg", "abs"};
  const std::string op = sketch.random().pick(names);
  if (op == "neg" || op == "abs") return sketch.offer(sketch.value(op, {a}));
  const bool divides = op == "floor_divide" || op == "remainder";
  const auto size = static_cast<double>(sketch.random().between(1, 7));
  const double number = sketch.random().chance(0.3) ? -size : size;
  Value* b = sketch.numbers({}, {number}, sketch.random().chance(0.8) ? a->type().dtype : DType::kI64);
  if (!divides && sketch.random().chance(0.4)) {
    Value* other = any_integer(sketch);
    if (broadcasts(a->shape(), other->shape())) b = other;
  }
  Value* out = sketch.value(op, {a, b});
  if (fits(sketch, out->shape())) sketch.offer(out);
}

void connective(Sketch& sketch) {
  Value* a = any_bool(sketch);
  if (sketch.random().chance(0.3)) return sketch.offer(sketch.value("logical_not", {a}));
  Value* b = any_bool(sketch);
  if (!broadcasts(a->shape(), b->shape())) return;
  static const std::vector<std::string> names = {"logical_and", "logical_or", "equal"};
  Value* out = sketch.value(sketch.random().pick(names), {a, b});
  if (fits(sketch, out->shape())) sketch.offer(out);
}

// Integers and booleans as floats near unit scale.
void to_float(Sketch& sketch) {
  Value* x = sketch.random().chance(0.6) ? any_integer(sketch) : any_bool(sketch);
  Value* number = cast(sketch, x, "f32");
  sketch.offer(sketch.value("mul", {number, sketch.scalar(is_bool(*x) ? 1 : 0.125)}));
}

void from_float(Sketch& sketch) {
  static const std::vector<std::string> dtypes = {"i32", "i64", "bool"};
  Value* x = any_float(sketch);
  sketch.offer(cast(sketch, x, sketch.random().pick(dtypes)));
}

// There and back, or wider and back.
void cast_chain(Sketch& sketch) {
  Value* x = any_integer(sketch);
  sketch.offer(cast(sketch, cast(sketch, x, sketch.random().chance(0.5) ? "i64" : "f32"), "i32"));
}

void choice(Sketch& sketch) {
  Value* condition = any_bool(sketch);
  Value* x = any_float(sketch);
  if (!broadcasts(condition->shape(), x->shape())) return;
  Value* out = sketch.value("where", {condition, x, sketch.scalar(0.25)});
  if (fits(sketch, out->shape())) sketch.offer(out);
}

void count(Sketch& sketch) {
  Value* x = sketch.random().chance(0.5) ? any_integer(sketch) : any_bool(sketch);
  if (is_bool(*x)) x = cast(sketch, x, "i64");
  if (x->rank() == 0) return;
  if (sketch.random().chance(0.5)) return sketch.offer(sketch.value("cumsum", {x}, {{"axis", int64_t{-1}}}));
  sketch.offer(sketch.value("sum", {x}, {{"axes", std::vector<int64_t>{-1}}, {"keep", true}}));
}

// Rows by indices, some counted from the end; elements by two of them.
void take(Sketch& sketch) {
  const auto table = [](const Value& v) {
    return is_f32(v) && v.rank() >= 1 && v.dim(0).is_constant() && v.dim(0).constant() >= kIds;
  };
  Value* x = pick_or_null(sketch, offered_where(sketch, "take", table));
  if (x == nullptr) x = sketch.input(DType::kF32, {Dim(kIds + 1), Dim(kIds + 2)});
  const auto index = [&] {
    Value* ids = sketch.input(sketch.random().chance(0.5) ? DType::kI32 : DType::kI64, {sketch.tokens()});
    if (sketch.random().chance(0.6)) return ids;
    return sketch.value("sub", {ids, sketch.numbers({}, {static_cast<double>(kIds)}, ids->type().dtype)});
  };
  std::vector<Value*> inputs = {x, index()};
  const bool square = x->rank() >= 2 && x->dim(1).is_constant() && x->dim(1).constant() >= kIds;
  if (square && sketch.random().chance(0.6)) inputs.push_back(sketch.reshape(index(), {sketch.tokens(), Dim(1)}));
  Value* out = sketch.value("take", inputs);
  if (fits(sketch, out->shape())) sketch.offer(out);
}

}  // namespace

const std::vector<AddOperator>& integer_operators() {
  static const std::vector<AddOperator> kinds = {arithmetic, arithmetic, connective, to_float, from_float,
                                                 cast_chain, choice,     count,      take};
  return kinds;
}

}  // namespace atb::random_graphs
