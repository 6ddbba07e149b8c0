// SPDX-License-Identifier: Apache-2.0
#include "fuzz/random_graphs/sketch.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ir/op.h"

namespace atb::random_graphs {
namespace {

// A value is read further only if f32 arithmetic gives it to this part of its spread; a tenth of what outputs must
// hold.
constexpr double kAccurate = 1e-6;
// Operands of a comparison differ at least by so much.
constexpr double kTie = 1e-3;

template <class To, class From, class Convert>
void append(std::vector<std::byte>& bytes, From value, Convert convert) {
  const To stored = convert(value);
  const auto* begin = reinterpret_cast<const std::byte*>(&stored);
  bytes.insert(bytes.end(), begin, begin + sizeof(To));
}

void append_number(std::vector<std::byte>& bytes, DType dtype, double value) {
  const auto as = [&](auto typed) {
    append<decltype(typed)>(bytes, value, [&](double v) { return decltype(typed)(v); });
  };
  switch (dtype) {
    case DType::kF32:
      return as(float{});
    case DType::kF16:
      return append<uint16_t>(bytes, static_cast<float>(value), f32_to_f16);
    case DType::kBF16:
      return append<uint16_t>(bytes, static_cast<float>(value), f32_to_bf16);
    case DType::kI32:
      return as(int32_t{});
    case DType::kI64:
      return as(int64_t{});
    case DType::kBool:
      return as(uint8_t{});
    default:
      throw_error(Code::kInternal, "[random graphs] no constants of ", dtype_name(dtype));
  }
}

double rounded(DType dtype, double value) {
  const float narrow = static_cast<float>(value);
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(narrow));
  if (dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(narrow));
  return narrow;
}

RefTensor<double> draw(DType dtype, std::vector<int64_t> shape, Prng& random) {
  RefTensor<double> tensor;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (is_float(dtype)) {
      tensor.f.push_back(rounded(dtype, random.bell()));
    } else {
      tensor.i.push_back(random.below(dtype == DType::kBool ? 2 : kIds));
    }
  }
  return tensor;
}

RefTensor<float> narrowed(const RefTensor<double>& tensor) {
  return {tensor.dtype, tensor.shape, {tensor.f.begin(), tensor.f.end()}, tensor.i, nullptr};
}

template <class T>
RefTensor<T> tensor_of(DType dtype, const std::vector<int64_t>& shape, const std::vector<double>& values) {
  RefTensor<T> tensor;
  tensor.dtype = dtype;
  tensor.shape = shape;
  for (const double value : values) {
    if (is_float(dtype)) {
      tensor.f.push_back(static_cast<T>(value));
    } else {
      tensor.i.push_back(static_cast<int64_t>(value));
    }
  }
  return tensor;
}

// Shapes among the attributes, with the extents of this run.
Attrs bound(const Attrs& attrs, const Bindings& bindings) {
  Attrs result;
  for (const auto& [name, attr] : attrs.items()) {
    const Shape* shape = std::get_if<Shape>(&attr);
    if (shape == nullptr) {
      result.set(name, attr);
      continue;
    }
    const std::vector<int64_t> extents = eval(*shape, bindings);
    result.set(name, Shape(extents.begin(), extents.end()));
  }
  return result;
}

bool accurate(const RefTensor<double>& wide, const RefTensor<float>& narrow) {
  if (!is_float(wide.dtype)) {
    return wide.i == narrow.i &&
           std::all_of(wide.i.begin(), wide.i.end(), [](int64_t v) { return std::abs(v) < (1 << 20); });
  }
  double squares = 0;
  double worst = 0;
  for (size_t i = 0; i < wide.f.size(); ++i) {
    if (!std::isfinite(wide.f[i]) || std::abs(wide.f[i]) > 100) return false;
    squares += wide.f[i] * wide.f[i];
    worst = std::max(worst, std::abs(wide.f[i] - static_cast<double>(narrow.f[i])));
  }
  const double rms = std::sqrt(squares / std::max<double>(1, static_cast<double>(wide.f.size())));
  return rms > 0.02 && rms < 30 && worst <= kAccurate * spread(wide.f);
}

}  // namespace

double spread(const std::vector<double>& values) {
  if (values.empty()) return 1;
  const auto n = static_cast<double>(values.size());
  double mean = 0;
  double squares = 0;
  for (const double value : values) {
    mean += value / n;
    squares += value * value / n;
  }
  double variance = 0;
  for (const double value : values) variance += (value - mean) * (value - mean) / n;
  return variance > 1e-12 * squares ? std::sqrt(variance) : std::sqrt(squares);
}

Inputs draw_inputs(const Graph& graph, const Bindings& bindings, uint64_t seed) {
  Inputs inputs;
  uint64_t number = 0;
  for (const Value* input : graph.inputs()) {
    Prng random(seed * 0x100000001B3ull + ++number);
    inputs[input->name()] = draw(input->type().dtype, eval(input->shape(), bindings), random);
  }
  return inputs;
}

Sketch::Sketch(uint64_t seed, Dim batch, Dim tokens, Bindings bindings)
    : random_(seed),
      input_seed_(seed),
      batch_(std::move(batch)),
      tokens_(std::move(tokens)),
      bindings_(std::move(bindings)),
      graph_(std::make_unique<Graph>("random_" + std::to_string(seed))),
      builder_(*graph_) {}

Value* Sketch::input(DType dtype, Shape shape) {
  Value* value = graph_->add_input(fresh("in"), {dtype, std::move(shape), nullptr});
  RefTensor<double> wide = draw_inputs(*graph_, bindings_, input_seed_).at(value->name());
  RefTensor<float> narrow = narrowed(wide);
  learn(value, std::move(wide), std::move(narrow), true);
  return value;
}

Value* Sketch::constant(std::vector<int64_t> shape, double scale, double offset, DType dtype) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(rounded(dtype, std::round((random_.bell() * scale + offset) * 256) / 256));
  }
  return numbers(std::move(shape), values, dtype);
}

Value* Sketch::numbers(std::vector<int64_t> shape, const std::vector<double>& values, DType dtype) {
  std::vector<std::byte> bytes;
  for (const double value : values) append_number(bytes, dtype, value);
  RefTensor<double> wide = tensor_of<double>(dtype, shape, values);
  RefTensor<float> narrow = tensor_of<float>(dtype, shape, values);
  Value* value = builder_.constant(
      Constant::from_storage(fresh("c"), dtype, nullptr, std::move(shape), storage_from_bytes(std::move(bytes)), 0));
  learn(value, std::move(wide), std::move(narrow), true);
  return value;
}

template <>
const RefTensor<double>& Sketch::numbers_of<double>(const Value* value) const {
  return known(value).wide;
}
template <>
const RefTensor<float>& Sketch::numbers_of<float>(const Value* value) const {
  return known(value).narrow;
}

template <class T>
std::vector<RefTensor<T>> Sketch::compute(std::string_view op, const std::vector<Value*>& inputs,
                                          const Attrs& attrs) const {
  Graph alone("alone");
  std::vector<Value*> operands;
  std::map<std::string, RefTensor<T>> tensors;
  for (const Value* input : inputs) {
    if (input == nullptr) {
      operands.push_back(nullptr);
      continue;
    }
    const RefTensor<T>& tensor = numbers_of<T>(input);
    const std::string name = "x" + std::to_string(operands.size());
    operands.push_back(alone.add_input(name, {tensor.dtype, Shape(tensor.shape.begin(), tensor.shape.end()), nullptr}));
    tensors[name] = tensor;
  }
  const Node* made = alone.add_node(OpRegistry::instance().get(op), operands, bound(attrs, bindings_));
  alone.set_outputs(made->outputs());
  return interpret<T>(alone, tensors);
}

bool Sketch::away_from_ties(const Node& node) const {
  const bool floats = !node.inputs().empty() && is_float(node.input(0)->type().dtype);
  if (!floats) return true;
  const auto away = [](const std::vector<double>& gaps) {
    return std::all_of(gaps.begin(), gaps.end(), [](double gap) { return std::abs(gap) > kTie; });
  };
  if (node.is("less_equal") || node.is("less") || node.is("equal")) {
    return away(compute<double>("sub", node.inputs(), {})[0].f);
  }
  std::vector<double> steps;  // truncated or floored
  if (node.is("floor_divide") || node.is("remainder")) steps = compute<double>("div", node.inputs(), {})[0].f;
  if (node.is("cast") && !is_float(node.output()->type().dtype)) steps = known(node.input(0)).wide.f;
  if (node.is("cast") && node.output()->type().dtype == DType::kBool) return away(steps);
  for (double& step : steps) step -= std::round(step);
  return away(steps);
}

Node* Sketch::node(std::string_view op, std::vector<Value*> inputs, Attrs attrs) {
  Node* made = builder_.node(op, std::move(inputs), std::move(attrs), fresh("v"));
  std::vector<RefTensor<double>> wide = compute<double>(op, made->inputs(), made->attrs());
  std::vector<RefTensor<float>> narrow = compute<float>(op, made->inputs(), made->attrs());
  const bool stable = away_from_ties(*made);
  const bool folded = !made->inputs().empty() &&
                      std::all_of(made->inputs().begin(), made->inputs().end(),
                                  [](const Value* input) { return input == nullptr || input->is_constant(); });
  for (size_t i = 0; i < wide.size(); ++i) {
    // What depends on constants alone is computed once, in f32.
    const bool exact = std::equal(wide[i].f.begin(), wide[i].f.end(), narrow[i].f.begin());
    if (folded && !exact) expect_rounding();
    const bool sound = stable && accurate(wide[i], narrow[i]);
    learn(made->output(i), std::move(wide[i]), std::move(narrow[i]), sound);
  }
  return made;
}

Value* Sketch::value(std::string_view op, std::vector<Value*> inputs, Attrs attrs) {
  return node(op, std::move(inputs), std::move(attrs))->output();
}

void Sketch::learn(const Value* value, RefTensor<double> wide, RefTensor<float> narrow, bool sound) {
  known_[value] = {std::move(wide), std::move(narrow), sound};
}

void Sketch::offer(Value* value, std::set<std::string, std::less<>> but_not) {
  if (!sound(value)) return;
  offered_.push_back(value);
  but_not_[value] = std::move(but_not);
}

bool Sketch::may_read(std::string_view op, const Value* value) const {
  const auto it = but_not_.find(value);
  return it == but_not_.end() || !it->second.contains(op);
}

}  // namespace atb::random_graphs
