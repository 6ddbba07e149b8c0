// SPDX-License-Identifier: Apache-2.0
// Builds the graph again with wider types: operators infer theirs from what they read.
#include "passes/widen_floats.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/op.h"

namespace atb {
namespace {

bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }
bool is_half(const Value* value) { return value != nullptr && is_half(value->type().dtype); }

// Operators whose weights, these inputs, may be of any float type.
bool takes_half(const Node& node, size_t input) {
  if (node.is("linear")) return input > 0;
  return (node.is("rms_norm") || node.is("layer_norm")) && input > 0;
}

// Tables whose rows seed activations: f32 values that are stored as halves.
bool is_table(const Node& node, size_t input) { return node.is("embedding") && input == 1; }

// The bytes of `half`, read as f32.
ConstantRef as_f32(const ConstantRef& half) {
  if (half->absent()) return Constant::absent(half->name(), DType::kF32, nullptr, half->shape());
  if (half->shape().size() <= 1) return Constant::from_f32(half->name(), half->shape(), half->to_f32());
  return Constant::reinterpreted(half, DType::kF32, find_encoding(dtype_name(half->dtype())));
}

class Widening {
 public:
  explicit Widening(const Graph& graph) : graph_(graph), wide_(std::make_unique<Graph>(graph.name())), b_(*wide_) {}

  std::unique_ptr<Graph> build() {
    for (const Value* input : graph_.inputs()) add_input(*input);
    for (const Node* node : graph_.nodes()) add(*node);
    std::vector<Value*> outputs;
    for (const Value* output : graph_.outputs()) outputs.push_back(as_said(output));
    wide_->set_outputs(std::move(outputs), graph_.output_names());
    return std::move(wide_);
  }

  int64_t widened() const { return widened_; }

 private:
  void add_input(const Value& input) {
    Value* same = wide_->add_input(input.name(), input.type());
    said_[&input] = same;
    values_[&input] = same;
    if (is_half(&input)) values_[&input] = cast(same, DType::kF32);
  }

  Value* cast(Value* value, DType dtype) {
    return b_("cast", {value}, {{"dtype", std::string(dtype_name(dtype))}},
              value->name() + "." + std::string(dtype_name(dtype)));
  }

  void add(const Node& node) {
    b_.set_layer(node.layer());
    b_.set_scope(node.scope());
    if (node.is("cast") && is_half(node.output())) return add_cast(node);
    // What decides something is rounded as the graph said.
    const bool discrete = !is_float(node.output()->type().dtype) || node.is("external");
    std::vector<Value*> inputs;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      inputs.push_back(discrete ? as_said(node.input(i)) : operand(node, i));
    }
    const Node* made = b_.node(node.op_name(), std::move(inputs), node.attrs(), node.name());
    for (size_t i = 0; i < node.outputs().size(); ++i) set(node.output(i), made->output(i));
  }

  // Keeps the name; an output that is half nevertheless (of an operator with types of its own) is cast.
  void set(const Value* from, Value* to) {
    wide_->rename(to, from->name());
    if (is_half(from)) ++widened_;
    if (is_half(to)) {
      said_[from] = to;
      to = cast(to, DType::kF32);
    }
    values_[from] = to;
  }

  // A cast to halves is one to f32: nothing for f32 and halves, which are f32 by now.
  void add_cast(const Node& node) {
    Value* x = at(node.input(0));
    ++widened_;
    if (x->type().dtype == DType::kF32) {
      values_[node.output()] = x;
      return;
    }
    values_[node.output()] = b_("cast", {x}, {{"dtype", std::string("f32")}}, node.name());
  }

  Value* operand(const Node& node, size_t index) {
    const Value* value = node.input(index);
    if (value == nullptr) return nullptr;
    if (is_half(value) && value->is_constant() && takes_half(node, index)) return b_.constant(value->constant());
    if (is_half(value) && value->is_constant() && is_table(node, index)) return table(value);
    return at(value);
  }

  Value* table(const Value* value) {
    ConstantRef& made = tables_[value];
    if (made == nullptr) made = as_f32(value->constant());
    return b_.constant(made);
  }

  // The value in f32 where it was half.
  Value* at(const Value* value) {
    if (const auto it = values_.find(value); it != values_.end()) return it->second;
    Value*& known = values_[value];
    if (!is_half(value)) return known = b_.constant(value->constant());
    if (value->rank() <= 1) return known = table(value);
    // A matrix: a cast, which linear looks through; other readers get it folded or computed.
    return known = cast(b_.constant(value->constant()), DType::kF32);
  }

  // The value as the graph said: rounded to half where it was.
  Value* as_said(const Value* value) {
    if (value == nullptr || !is_half(value)) return value == nullptr ? nullptr : at(value);
    if (value->is_constant()) return b_.constant(value->constant());
    Value*& known = said_[value];
    if (known == nullptr) known = cast(at(value), value->type().dtype);
    return known;
  }

  const Graph& graph_;
  std::unique_ptr<Graph> wide_;
  Builder b_;
  std::unordered_map<const Value*, Value*> values_;  // in f32 where they were half
  std::unordered_map<const Value*, Value*> said_;    // halves, for those who need them
  std::unordered_map<const Value*, ConstantRef> tables_;
  int64_t widened_ = 0;
};

bool needs_widening(const Graph& graph) {
  bool half = std::any_of(graph.inputs().begin(), graph.inputs().end(), [](const Value* v) { return is_half(v); });
  for (const Node* node : graph.nodes()) {
    if (node->op().has_state) return false;
    const auto& outputs = node->outputs();
    half = half || std::any_of(outputs.begin(), outputs.end(), [](const Value* v) { return is_half(v); });
  }
  return half;
}

}  // namespace

int64_t widen_floats(Graph& graph) {
  if (!needs_widening(graph)) return 0;
  Widening widening(graph);
  std::unique_ptr<Graph> wide = widening.build();
  graph = std::move(*wide);
  return widening.widened();
}

}  // namespace atb
