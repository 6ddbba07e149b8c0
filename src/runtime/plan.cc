// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan.h"

#include <algorithm>

#include "core/error.h"
#include "ir/op.h"

namespace atb {

Plan::Plan(const Program& program, Bindings largest) : program_(program), largest_(std::move(largest)) {
  const BufferPlan buffers = assign_buffers(program.graph(), program.schedule(), largest_, program.planned());
  arena_bytes_ = static_cast<size_t>(buffers.arena_bytes);
  lower_bound_bytes_ = static_cast<size_t>(buffers.lower_bound_bytes);
  add_slots(buffers);
  for (const Program::Item& item : program.items()) {
    std::vector<int>& dims = attr_dims_.emplace_back();
    for (const Dim& dim : attr_dims(item.node->attrs())) dims.push_back(intern(dim));
  }
}

int Plan::intern(const Dim& dim) {
  const auto it = std::find(dims_.begin(), dims_.end(), dim);
  if (it != dims_.end()) return static_cast<int>(it - dims_.begin());
  dims_.push_back(dim);
  return static_cast<int>(dims_.size()) - 1;
}

void Plan::add_slot(const Value* value, Place place, int64_t where) {
  Slot slot{value, place, where, {}};
  for (const Dim& dim : value->shape()) slot.dims.push_back(intern(dim));
  slot_index_[value] = static_cast<int>(slots_.size());
  slots_.push_back(std::move(slot));
}

// Slots in definition order, so that a view comes after what it aliases.
void Plan::add_slots(const BufferPlan& buffers) {
  const Graph& graph = program_.graph();
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    add_slot(graph.inputs()[i], Place::kInput, static_cast<int64_t>(i));
  for (const Value* constant : graph.constants()) add_slot(constant, Place::kConstant, 0);
  for (const Node* node : graph.nodes()) {
    for (const Value* value : node->outputs()) {
      const auto output = std::find(graph.outputs().begin(), graph.outputs().end(), value);
      if (aliases_input(*node)) {
        add_slot(value, Place::kAlias, slot_of(node->input(0)));
      } else if (value->type().dtype == DType::kState) {
        add_slot(value, Place::kNone, 0);
      } else if (output != graph.outputs().end()) {
        add_slot(value, Place::kOutput, output - graph.outputs().begin());
      } else {
        add_slot(value, Place::kArena, buffers.offsets.at(value));
      }
    }
  }
}

TensorView Plan::view_of(const Slot& slot, const std::vector<int64_t>& dims, const std::vector<TensorView>& views,
                         const std::vector<TensorView>& inputs, const std::vector<std::byte*>& outputs,
                         std::byte* arena) const {
  const std::vector<int64_t> shape = shape_of(slot, dims);
  const DType dtype = slot.value->type().dtype;
  switch (slot.place) {
    case Place::kInput:
      return inputs[static_cast<size_t>(slot.where)];
    case Place::kOutput:
      return TensorView::dense(outputs[static_cast<size_t>(slot.where)], dtype, shape);
    case Place::kArena:
      return TensorView::dense(arena + slot.where, dtype, shape);
    case Place::kConstant:
      // Kernels only read constants; views are writable in type alone.
      return TensorView::dense(const_cast<std::byte*>(slot.value->constant()->plain_bytes()), dtype, shape);
    case Place::kNone:
      return TensorView::dense(nullptr, dtype, shape);
    case Place::kAlias:
      break;
  }
  TensorView view = views[static_cast<size_t>(slot.where)];
  const Node& node = *slot.value->producer();
  if (!node.is("transpose")) return TensorView::dense(view.data, dtype, shape);
  const auto& perm = node.attrs().get<std::vector<int64_t>>("perm");
  const TensorView source = view;
  for (size_t axis = 0; axis < perm.size(); ++axis) {
    view.shape[axis] = source.shape[static_cast<size_t>(perm[axis])];
    view.stride[axis] = source.stride[static_cast<size_t>(perm[axis])];
  }
  return view;
}

bool Plan::needs_contiguous(size_t input) const {
  // Uses of the input and of its transposes.
  std::vector<const Value*> seen{program_.graph().inputs().at(input)};
  for (size_t i = 0; i < seen.size(); ++i) {
    for (const Use& use : seen[i]->uses()) {
      if (!aliases_input(*use.node)) continue;
      if (use.node->is("reshape")) return true;
      seen.push_back(use.node->output());
    }
  }
  return false;
}

std::vector<int64_t> Plan::shape_of(const Slot& slot, const std::vector<int64_t>& dims) const {
  std::vector<int64_t> shape;
  for (int index : slot.dims) shape.push_back(dims[static_cast<size_t>(index)]);
  return shape;
}

std::vector<int64_t> Plan::eval_dims(const Bindings& bindings) const {
  for (const auto& [symbol, value] : bindings) {
    const auto limit = largest_.find(symbol);
    require(limit != largest_.end() && value <= limit->second, Code::kInternal, "[plan] ", symbol, " = ", value,
            " is beyond this plan's bucket");
  }
  std::vector<int64_t> dims;
  for (const Dim& dim : dims_) dims.push_back(dim.eval(bindings));
  return dims;
}

void Plan::check_input(size_t index, const TensorView& view, const std::vector<int64_t>& dims) const {
  const Value* input = program_.graph().inputs()[index];
  if (input->type().dtype == DType::kState) return;
  const std::vector<int64_t> shape = shape_of(slots_[static_cast<size_t>(slot_of(input))], dims);
  const std::span<const int64_t> actual(view.shape.data(), static_cast<size_t>(view.rank));
  require(view.dtype == input->type().dtype && std::equal(actual.begin(), actual.end(), shape.begin(), shape.end()),
          Code::kInvalidArgument, "[plan] input ", input->name(), ": dtype or shape differs from ", input->type().str(),
          " of the graph");
  require(view.contiguous() || !needs_contiguous(index), Code::kInvalidArgument, "[plan] input ", input->name(),
          ": strided, but a reshape reads it in place; pass a contiguous copy");
}

Frame Plan::resolve(const Bindings& bindings, const std::vector<std::byte*>& inputs,
                    const std::vector<std::byte*>& outputs, std::byte* arena) const {
  const std::vector<int64_t> dims = eval_dims(bindings);
  std::vector<TensorView> views;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value* input = program_.graph().inputs().at(i);
    views.push_back(
        TensorView::dense(inputs[i], input->type().dtype, shape_of(slots_[static_cast<size_t>(slot_of(input))], dims)));
  }
  return frame_of(dims, views, outputs, arena);
}

Frame Plan::resolve(const Bindings& bindings, const std::vector<TensorView>& inputs,
                    const std::vector<std::byte*>& outputs, std::byte* arena) const {
  return frame_of(eval_dims(bindings), inputs, outputs, arena);
}

Frame Plan::frame_of(const std::vector<int64_t>& dims, const std::vector<TensorView>& inputs,
                     const std::vector<std::byte*>& outputs, std::byte* arena) const {
  require(inputs.size() == program_.graph().inputs().size(), Code::kInvalidArgument, "[plan] ", inputs.size(),
          " inputs, the graph has ", program_.graph().inputs().size());
  for (size_t i = 0; i < inputs.size(); ++i) check_input(i, inputs[i], dims);
  std::vector<TensorView> views;
  views.reserve(slots_.size());
  for (const Slot& slot : slots_) views.push_back(view_of(slot, dims, views, inputs, outputs, arena));

  const auto view = [&](const Value* value) {
    return value == nullptr ? TensorView{} : views[static_cast<size_t>(slot_of(value))];
  };
  Frame frame;
  frame.items.resize(program_.items().size());
  for (size_t i = 0; i < frame.items.size(); ++i) {
    Frame::Item& item = frame.items[i];
    for (const Value* input : program_.items()[i].node->inputs()) item.inputs.push_back(view(input));
    for (const Value* output : program_.items()[i].node->outputs()) item.outputs.push_back(view(output));
    for (const int index : attr_dims_[i]) item.dims.push_back(dims[static_cast<size_t>(index)]);
    item.call.inputs = item.inputs;
    item.call.outputs = item.outputs;
    item.call.dims = item.dims;
  }
  for (const Value* output : program_.graph().outputs()) frame.results.push_back(view(output));
  return frame;
}

}  // namespace atb
