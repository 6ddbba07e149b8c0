// SPDX-License-Identifier: Apache-2.0
// Builds the step graph node by node from the labelled cache-free one.
#include "passes/insert_kv_cache.h"

#include <map>
#include <unordered_map>
#include <utility>

#include "ir/builder.h"
#include "passes/analysis/axis_labels.h"
#include "passes/analysis/scalar.h"
#include "passes/cache_attention.h"
#include "passes/engine/rewriter.h"

namespace atb {
namespace {

// A product with one weight that adds nothing of another value.
bool is_linear(const Node& node) {
  return node.is("linear") || (node.is("fused_linear") && node.outputs().size() == 1 && node.input(5) == nullptr);
}

// The node before which rows are gathered: the last linear, behind which only operators on each row alone follow.
const Node* find_head(const Graph& graph, const AxisLabels& labels) {
  const Value* value = graph.outputs()[0];
  while (value->producer() != nullptr) {
    const Node* node = value->producer();
    if (is_linear(*node)) return labels.step_shape(node->input(0)).size() == 2 ? node : nullptr;
    const bool rowwise =
        is_broadcasting(*node) || is_elementwise(*node) || node->is("softmax") || labels.selects_last(*node);
    if (!rowwise || value->uses().size() > 1) return nullptr;
    for (size_t i = 1; i < node->inputs().size(); ++i) {
      if (node->input(i) != nullptr && !node->input(i)->is_constant()) return nullptr;
    }
    value = node->input(0);
  }
  return nullptr;
}

// A value of the type of `input` that says that nothing is padded: presence is 1 everywhere, positions count up.
Value* without_padding(Rewriter& rewriter, const Value& input, bool positions) {
  const DType dtype = input.type().dtype;
  Value* x = nullptr;
  if (positions) {
    x = rewriter.value("iota", {}, {{"shape", Shape{input.dim(1)}}});
    if (dtype != DType::kI32) x = rewriter.value("cast", {x}, {{"dtype", std::string(dtype_name(dtype))}});
  } else {
    x = rewriter.constant(scalar_constant(dtype, 1));
  }
  return rewriter.value("broadcast", {x}, {{"shape", input.shape()}});
}

class StepBuilder {
 public:
  StepBuilder(const Graph& graph, const AxisLabels& labels)
      : graph_(graph), labels_(labels), step_(std::make_unique<Graph>(graph.name())), builder_(*step_) {}

  std::unique_ptr<Graph> build() {
    const Dim& tokens = labels_.tokens();
    step_values_[labels_.ids()] = step_->add_input("ids", {DType::kI32, {tokens}, nullptr});
    positions_ = step_->add_input("positions", {DType::kI32, {tokens}, nullptr});
    logit_rows_ = step_->add_input("logit_rows", {DType::kI32, {Dim::symbol("L", 0)}, nullptr});
    kv_ = step_->add_input("kv", {DType::kState, {}, nullptr});
    head_ = find_head(graph_, labels_);
    for (const Node* node : graph_.nodes()) add(*node);
    Value* logits = at(graph_.outputs()[0]);
    builder_.set_layer(-1);
    if (logits->rank() != 2) logits = builder_.reshape(logits, {logits->dim(0), logits->dim(-1)});
    if (head_ == nullptr) logits = gather(logits);
    step_->set_outputs({logits, kv_}, {"logits", "kv"});
    return std::move(step_);
  }

 private:
  Value* at(const Value* value) {
    if (value == nullptr) return nullptr;
    if (value->is_constant()) return step_->add_constant(value->constant());
    return step_values_.at(value);
  }

  Value* gather(Value* rows) { return builder_("gather_rows", {rows, logit_rows_}, {}, "logit_rows_of"); }

  void add(const Node& node) {
    builder_.set_layer(node.layer());
    builder_.set_scope(node.scope());
    if (node.is("flash_attention")) return add_attention(node);
    if (labels_.selects_last(node)) {
      step_values_[node.output()] = at(node.input(0));
      return;
    }
    if (node.is("reshape")) return add_reshape(node);
    if (node.is("transpose")) return add_transpose(node);
    if (node.is("broadcast")) return add_broadcast(node);
    if (node.is("iota") && labels_.of(node.output())[0] == Axis::kToken) {
      step_values_[node.output()] = positions_;
      return;
    }
    std::vector<Value*> inputs;
    for (size_t i = 0; i < node.inputs().size(); ++i) inputs.push_back(operand(node, i));
    if (&node == head_) inputs[0] = gather(inputs[0]);
    const Node* made = builder_.node(node.op_name(), std::move(inputs), step_attrs(node), node.name());
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      step_values_[node.output(i)] = made->output(i);
      step_->rename(made->output(i), node.output(i)->name());
    }
  }

  // A unit axis of an operand that broadcasts along the batch axis of the result goes with it.
  Value* operand(const Node& node, size_t index) {
    const Value* value = node.input(index);
    if (value == nullptr) return nullptr;
    const Labels& own = labels_.of(value);
    const Labels& result = labels_.of(node.output());
    if (!is_broadcasting(node) || own.size() > result.size()) return at(value);
    Shape shape;
    bool dropped = false;
    for (size_t axis = 0; axis < own.size(); ++axis) {
      if (own[axis] == Axis::kBatch) continue;
      const bool over_batch = result[result.size() - own.size() + axis] == Axis::kBatch;
      dropped = dropped || over_batch;
      if (!over_batch) shape.push_back(value->shape()[axis]);
    }
    return dropped ? builder_.reshape(at(value), shape) : at(value);
  }

  // Axes counted in the step.
  Attrs step_attrs(const Node& node) const {
    Attrs attrs = node.attrs();
    if (attrs.has("axis")) attrs.set("axis", labels_.step_axis(node.input(0), attrs.integer("axis")));
    if (attrs.has("axes")) {
      std::vector<int64_t> axes = attrs.get<std::vector<int64_t>>("axes");
      for (int64_t& axis : axes) axis = labels_.step_axis(node.input(0), axis);
      attrs.set("axes", std::move(axes));
    }
    return attrs;
  }

  // A unit axis of the operand in the place of the batch goes with it.
  void add_broadcast(const Node& node) {
    const Labels& own = labels_.of(node.input(0));
    const Labels& result = labels_.of(node.output());
    Shape shape;
    for (size_t axis = 0; axis < own.size(); ++axis) {
      if (result[result.size() - own.size() + axis] != Axis::kBatch) shape.push_back(node.input(0)->shape()[axis]);
    }
    Value* x = builder_.reshape(at(node.input(0)), shape);
    Shape to = labels_.step_shape(node.output());
    step_values_[node.output()] = x->shape() == to ? x : builder_("broadcast", {x}, {{"shape", to}}, node.name());
  }

  void add_reshape(const Node& node) {
    Value* x = at(node.input(0));
    Shape shape = labels_.step_shape(node.output());
    step_values_[node.output()] = x->shape() == shape ? x : builder_.reshape(x, std::move(shape), node.name());
  }

  void add_transpose(const Node& node) {
    const Labels& labels = labels_.of(node.input(0));
    std::vector<int64_t> step_axis(labels.size(), -1);  // axis in the step, without the batch
    int64_t next = 0;
    for (size_t axis = 0; axis < labels.size(); ++axis) {
      if (labels[axis] != Axis::kBatch) step_axis[axis] = next++;
    }
    std::vector<int64_t> perm;
    bool moves = false;
    for (int64_t axis : node.attrs().get<std::vector<int64_t>>("perm")) {
      if (step_axis[static_cast<size_t>(axis)] < 0) continue;
      moves = moves || step_axis[static_cast<size_t>(axis)] != static_cast<int64_t>(perm.size());
      perm.push_back(step_axis[static_cast<size_t>(axis)]);
    }
    Value* x = at(node.input(0));
    step_values_[node.output()] = moves ? builder_.transpose(x, std::move(perm), node.name()) : x;
  }

  // Layers that attend to the very same keys and values share a slot, written once.
  void add_attention(const Node& node) {
    const auto key = std::make_pair(node.input(1), node.input(2));
    auto slot = slots_.find(key);
    if (slot == slots_.end()) {
      slot = slots_.emplace(key, static_cast<int64_t>(slots_.size())).first;
      kv_ = builder_("kv_append", {at(key.first), at(key.second), kv_}, {{"slot", slot->second}});
    }
    step_values_[node.output()] =
        builder_("flash_attention_kv", {at(node.input(0)), kv_}, kv_attention_attrs(node, slot->second), node.name());
  }

  const Graph& graph_;
  const AxisLabels& labels_;
  std::unique_ptr<Graph> step_;
  Builder builder_;
  std::unordered_map<const Value*, Value*> step_values_;
  std::map<std::pair<const Value*, const Value*>, int64_t> slots_;
  const Node* head_ = nullptr;
  Value* positions_ = nullptr;
  Value* logit_rows_ = nullptr;
  Value* kv_ = nullptr;
};

}  // namespace

void drop_padding(Graph& graph) {
  for (Value* input : std::vector<Value*>(graph.inputs())) {
    const bool positions = input->name() == "position_ids";
    if ((!positions && input->name() != "attention_mask") || graph.nodes().empty()) continue;
    if (input->rank() != 2 || input->dim(0) == input->dim(1)) continue;
    Rewriter rewriter(graph, graph.nodes().front());
    rewriter.replace(input, without_padding(rewriter, *input, positions));
    if (rewriter.commit()) continue;
    graph.erase_input(input);
  }
}

void insert_kv_cache(Graph& graph) {
  const AxisLabels labels(graph);
  const auto is_logits = [&](const Value* value) {
    const Labels& axes = labels.of(value);
    if (axes.size() == 2) return axes == Labels{Axis::kRow, Axis::kFeature};
    if (axes == Labels{Axis::kRow, Axis::kFeature, Axis::kFeature}) return value->dim(1) == Dim(1);
    return axes.size() == 3 && axes[0] == Axis::kBatch && (axes[1] == Axis::kToken || axes[1] == Axis::kLast) &&
           axes[2] == Axis::kFeature;
  };
  if (graph.outputs().size() != 1 || !is_logits(graph.outputs()[0])) {
    throw_error(Code::kUnsupported, "[insert_kv_cache] ", graph.outputs().size(), " outputs, the first ",
                graph.outputs().empty() ? "none" : graph.outputs()[0]->type().str(),
                ": needs one, the logits [B, T, V], or [B, V] of the last token");
  }
  graph = std::move(*StepBuilder(graph, labels).build());
}

}  // namespace atb
