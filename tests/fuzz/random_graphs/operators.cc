// SPDX-License-Identifier: Apache-2.0
#include "fuzz/random_graphs/operators.h"

#include <cmath>
#include <string>
#include <vector>

#include "fuzz/random_graphs/operands.h"

namespace atb::random_graphs {
namespace {

// ---- one function an operator or family ----------------------------------------------------------------------------

void activation(Sketch& sketch) {
  Value* x = any_float(sketch);
  switch (sketch.random().below(5)) {
    case 0:
      return sketch.offer(sketch.value("silu", {x}));
    case 1:
      return sketch.offer(sketch.value("relu", {x}));
    case 2:
      if (x->rank() == 0) return;
      return sketch.offer(sketch.value("softmax", {x}));
    default: {
      const std::string form = sketch.random().chance(0.5) ? "tanh" : "none";
      return sketch.offer(sketch.value("gelu", {x}, {{"approximate", form}}));
    }
  }
}

void arithmetic(Sketch& sketch) {
  Value* a = any_float(sketch);
  const std::string op = sketch.random().pick(std::vector<std::string>{"add", "add", "sub", "mul", "mul", "div"});
  if (op == "div") {
    const double divisor = static_cast<double>(sketch.random().between(1, 16)) / 4;
    Value* by =
        sketch.random().chance(0.5) ? sketch.scalar(divisor) : sketch.constant(trailing_shape(sketch, *a), 0.125, 2);
    // A single divisor may become a factor, its reciprocal in f32.
    if (by->constant()->num_rows() * by->constant()->row_elems() == 1 && !is_power_of_two(by->constant()->to_f32()[0]))
      sketch.expect_rounding();
    return sketch.offer(sketch.value("div", {a, by}));
  }
  Value* b = partner(sketch, *a, op == "mul" ? 1 : 0);
  // The result has the type of the first operand.
  const bool swap = is_f32(*b) && sketch.random().chance(0.3);
  Value* out = sketch.value(op, swap ? std::vector<Value*>{b, a} : std::vector<Value*>{a, b});
  if (fits(sketch, out->shape())) sketch.offer(out);
}

void norm(Sketch& sketch) {
  const bool rms = sketch.random().chance(0.5);
  const std::string op = rms ? "rms_norm" : "layer_norm";
  Value* x = pick_or_null(sketch, offered_where(sketch, op, has_features));
  if (x == nullptr) return;
  const int64_t width = x->dim(-1).constant();
  const auto vector = [&](double mean) {
    return sketch.random().chance(0.8) ? sketch.constant({width}, 0.25, mean) : sketch.input(DType::kF32, {Dim(width)});
  };
  std::vector<Value*> inputs = {x};
  if (rms || sketch.random().chance(0.8)) inputs.push_back(vector(1));
  if (!rms && inputs.size() == 2 && sketch.random().chance(0.5)) inputs.push_back(vector(0));
  sketch.offer(sketch.value(op, inputs, {{"eps", 1e-3}}));
}

void linear(Sketch& sketch) {
  Value* x = pick_or_null(sketch, offered_where(sketch, "linear", has_features));
  if (x == nullptr) return;
  const int64_t inner = x->dim(-1).constant();
  const int64_t width = sketch.random().pick(std::vector<int64_t>{1, 3, 5, 8, 16, 17});
  const double kind = sketch.random().unit();
  const double scale = 1 / std::sqrt(static_cast<double>(inner));
  Value* weight = kind < 0.1   ? sketch.input(DType::kF32, {Dim(width), Dim(inner)})
                  : kind < 0.2 ? sketch.constant({width, inner}, scale, 0, DType::kF16)
                  : kind < 0.3 ? sketch.constant({width, inner}, scale, 0, DType::kBF16)
                               : sketch.constant({width, inner}, scale);
  std::vector<Value*> inputs = {x, weight};
  if (sketch.random().chance(0.4)) inputs.push_back(sketch.constant({width}, 0.5));
  sketch.offer(sketch.value("linear", inputs));
}

// x times a value with as many columns, or a constant, or itself; brought back to unit scale.
void matmul(Sketch& sketch) {
  const auto matrix = [](const Value& v) { return has_features(v) && v.rank() >= 2; };
  Value* a = pick_or_null(sketch, offered_where(sketch, "matmul", matrix));
  if (a == nullptr) return;
  const int64_t inner = a->dim(-1).constant();
  Value* scale = sketch.scalar(1 / std::exp2(std::round(std::log2(std::sqrt(static_cast<double>(inner))))));
  const auto columns = [&](const Value& v) {
    const bool fit = matrix(v) && v.dim(-1) == a->dim(-1);
    return fit && broadcasts({v.shape().begin(), v.shape().end() - 2}, {a->shape().begin(), a->shape().end() - 2});
  };
  Value* b = sketch.random().chance(0.7) ? pick_or_null(sketch, offered_where(sketch, "matmul", columns)) : nullptr;
  Value* out = b != nullptr ? sketch.value("matmul", {a, b}, {{"transpose_b", true}})
                            : sketch.value("matmul", {a, sketch.constant({inner, sketch.random().between(1, 9)})});
  out = sketch.value("mul", {out, scale});
  if (fits(sketch, out->shape())) sketch.offer(out);
}

// where(a <= b, c, d), of floats or of positions.
void choice(Sketch& sketch) {
  Value* c = any_float(sketch);
  Value* condition = nullptr;
  if (sketch.random().chance(0.5)) {
    Value* a = any_float(sketch);
    if (!broadcasts(a->shape(), c->shape())) a = c;
    condition = sketch.value("less_equal", {a, partner(sketch, *a, 0)});
  } else {
    if (c->rank() < 2) return;
    Value* columns = sketch.value("iota", {}, {{"shape", Shape{c->dim(-1)}}});
    Value* rows = sketch.reshape(sketch.value("iota", {}, {{"shape", Shape{c->dim(-2)}}}), {c->dim(-2), Dim(1)});
    condition = sketch.value("less_equal", {columns, rows});
  }
  if (!sketch.sound(condition) || !broadcasts(condition->shape(), c->shape())) return;
  Value* d = partner(sketch, *c, 0);
  if (!is_f32(*d) || !broadcasts(d->shape(), condition->shape())) return;
  Value* out = sketch.value("where", {condition, c, d});
  if (fits(sketch, out->shape())) sketch.offer(out);
  if (sketch.random().chance(0.3)) sketch.offer(condition);
}

// Another shape of the same elements: axes merged, split, inserted or dropped.
void reshape(Sketch& sketch) {
  Value* x = any_float(sketch);
  Shape shape = x->shape();
  const auto at = [&](int64_t axis) { return shape.begin() + axis; };
  switch (sketch.random().below(4)) {
    case 0: {  // merge two neighbours
      if (x->rank() < 2) return;
      const int64_t axis = sketch.random().below(x->rank() - 1);
      *at(axis) = *at(axis) * *at(axis + 1);
      shape.erase(at(axis + 1));
      break;
    }
    case 1: {  // split one
      if (x->rank() == 0) return;
      const int64_t axis = sketch.random().below(x->rank());
      if (!at(axis)->is_constant()) return;
      const int64_t extent = at(axis)->constant();
      int64_t factor = sketch.random().between(1, 4);
      while (extent % factor != 0) --factor;
      *at(axis) = extent / factor;
      shape.insert(at(axis + sketch.random().below(2)), Dim(factor));
      break;
    }
    case 2:
      shape.insert(at(sketch.random().below(x->rank() + 1)), Dim(1));
      break;
    default:
      shape.erase(std::remove(shape.begin(), shape.end(), Dim(1)), shape.end());
  }
  if (fits(sketch, shape)) sketch.offer(sketch.reshape(x, shape));
}

void transpose(Sketch& sketch) {
  Value* x = any_float(sketch);
  std::vector<int64_t> perm(static_cast<size_t>(x->rank()));
  for (size_t i = 0; i < perm.size(); ++i) {
    perm[i] = static_cast<int64_t>(i);
    std::swap(perm[i], perm[static_cast<size_t>(sketch.random().below(static_cast<int64_t>(i) + 1))]);
  }
  sketch.offer(sketch.transpose(x, perm));
}

void embedding(Sketch& sketch) {
  const DType ids = sketch.random().chance(0.5) ? DType::kI32 : DType::kI64;
  Value* table = sketch.constant({kIds + sketch.random().below(5), sketch.random().between(1, 9)});
  sketch.offer(sketch.value("embedding", {sketch.input(ids, {sketch.batch(), sketch.tokens()}), table}));
}

void gather_rows(Sketch& sketch) {
  const auto table = [](const Value& v) {
    return is_f32(v) && v.rank() == 2 && v.dim(0).is_constant() && v.dim(0).constant() >= kIds;
  };
  Value* x = pick_or_null(sketch, offered_where(sketch, "gather_rows", table));
  if (x == nullptr) x = sketch.input(DType::kF32, {Dim(kIds), Dim(sketch.random().between(1, 9))});
  sketch.offer(sketch.value("gather_rows", {x, sketch.input(DType::kI32, {sketch.tokens()})}));
}

void rotary(Sketch& sketch) {
  const auto accepts = [](const Value& v) { return has_features(v) && v.rank() >= 3 && v.dim(-1).constant() >= 2; };
  Value* x = pick_or_null(sketch, offered_where(sketch, "rotary", accepts));
  if (x == nullptr) return;
  const int64_t half = sketch.random().between(1, x->dim(-1).constant() / 2);
  Value* positions = sketch.value("iota", {}, {{"shape", Shape{x->dim(-3)}}});
  const Node* table = sketch.node("rotary_table", {positions, sketch.constant({half}, 0.25, 0.5)});
  const bool interleaved = sketch.random().chance(0.5);
  sketch.offer(sketch.value("rotary", {x, table->output(0), table->output(1)}, {{"interleaved", interleaved}}));
  if (sketch.random().chance(0.3)) sketch.offer(table->output(1));
}

// The same again: fan-out that common subexpressions bring together.
void twin(Sketch& sketch) {
  Value* x = any_float(sketch);
  const Node* node = x->producer();
  if (node == nullptr || node->outputs().size() != 1) return;
  for (const Value* input : node->inputs()) {
    if (input != nullptr && !sketch.may_read(node->op_name(), input)) return;
  }
  if (node->layer() >= 0) return;  // a second one in a plant is a reader elsewhere
  sketch.offer(sketch.value(node->op_name(), node->inputs(), node->attrs()));
}

}  // namespace

const std::vector<AddOperator>& basic_operators() {
  static const std::vector<AddOperator> kinds = {activation, arithmetic,  arithmetic, norm,    linear,    linear,
                                                 matmul,     choice,      reshape,    reshape, transpose, transpose,
                                                 embedding,  gather_rows, rotary,     twin};
  return kinds;
}

void add_random_operator(Sketch& sketch) {
  using List = const std::vector<AddOperator>& (*)();
  static const std::vector<List> lists = {basic_operators, basic_operators,   function_operators,
                                          piece_operators, integer_operators, spelled_operators};
  sketch.random().pick(sketch.random().pick(lists)())(sketch);
}

}  // namespace atb::random_graphs
