// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "ir/op.h"
#include "passes/plan_memory.h"

namespace atb {
namespace {

// The executed node's value, graph input or constant whose storage `value` aliases.
const Value* root_of(const Value* value) {
  while (value->producer() != nullptr && aliases_input(*value->producer())) value = value->producer()->input(0);
  return value;
}

// Constants that kernels may read as they are: plain elements in one piece.
const std::byte* constant_bytes(const Constant& constant) {
  const bool in_one_piece = !constant.absent() && constant.encoding() == nullptr && constant.segments().size() == 1 &&
                            constant.segments()[0].row_map == nullptr && constant.num_rows() > 0;
  return in_one_piece ? constant.row(0) : nullptr;
}

size_t dense_bytes(const Value& value, const Bindings& bindings) {
  return static_cast<size_t>(num_elements(value.shape()).eval(bindings)) * dtype_size(value.type().dtype);
}

}  // namespace

Plan::Plan(const Program& program, Bindings largest) : program_(program), largest_(std::move(largest)) {
  add_slots();
  place_buffers();
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

// Slots in definition order, so that a view comes after what it aliases. Arena offsets are filled by place_buffers().
void Plan::add_slots() {
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
        add_slot(value, Place::kArena, 0);
      }
    }
  }
}

// From the stage that writes a buffer to the last stage that reads it through any view.
std::vector<Plan::Life> Plan::lifetimes() const {
  std::vector<Life> lives;
  std::unordered_map<const Value*, size_t> life_of;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].place != Place::kArena) continue;
    const int stage = program_.stage_of(slots_[i].value->producer());
    life_of[slots_[i].value] = lives.size();
    lives.push_back({static_cast<int>(i), stage, stage});
  }
  const auto read = [&](const Value* value, int stage) {
    const auto it = life_of.find(root_of(value));
    if (it != life_of.end()) lives[it->second].last = std::max(lives[it->second].last, stage);
  };
  for (const Program::Item& item : program_.items()) {
    for (const Value* input : item.node->inputs()) {
      if (input != nullptr) read(input, program_.stage_of(item.node));
    }
  }
  for (const Value* output : program_.graph().outputs()) read(output, static_cast<int>(program_.stages().size()));
  return lives;
}

// True if `node` may write `output` over `input`: same bytes, seen by no view, and nobody else reads it at this stage.
bool Plan::may_overwrite(const Node& node, const Value* input, const Value* output) const {
  if (input->type().dtype != output->type().dtype || program_.graph().is_output(input)) return false;
  if (dense_bytes(*input, largest_) != dense_bytes(*output, largest_)) return false;
  int readers = 0;
  for (const Use& use : input->uses()) {
    if (aliases_input(*use.node)) return false;
    readers += program_.stage_of(use.node) == program_.stage_of(&node) ? 1 : 0;
  }
  return readers == 1;
}

// Joins the lives of an operand that ends here and the output that may be written over it. Returns, for each life, the
// life whose buffer it uses.
std::vector<size_t> Plan::join_in_place(std::vector<Life>& lives) const {
  std::vector<size_t> owner(lives.size());
  std::iota(owner.begin(), owner.end(), size_t{0});
  const auto life_of = [&](const Value* value) {
    const auto it = std::find_if(lives.begin(), lives.end(), [&](const Life& life) {
      return slots_[static_cast<size_t>(life.slot)].value == value;
    });
    return static_cast<size_t>(it - lives.begin());
  };
  for (const Program::Item& item : program_.items()) {
    const std::vector<OutputSpec>& specs = item.node->op().outputs;
    for (size_t o = 0; o < item.node->outputs().size() && o < specs.size(); ++o) {
      if (specs[o].in_place_of < 0) continue;
      const Value* input = item.node->input(static_cast<size_t>(specs[o].in_place_of));
      if (input == nullptr || !may_overwrite(*item.node, input, item.node->output(o))) continue;
      const size_t from = life_of(input);
      const size_t to = life_of(item.node->output(o));
      if (from == lives.size() || to == lives.size()) continue;
      Life& source = lives[owner[from]];
      if (source.last != program_.stage_of(item.node)) continue;
      source.last = lives[to].last;
      owner[to] = owner[from];
    }
  }
  return owner;
}

void Plan::place_buffers() {
  std::vector<Life> lives = lifetimes();
  const std::vector<size_t> owner = join_in_place(lives);
  std::vector<PlannedBuffer> buffers;
  std::vector<size_t> buffer_of(lives.size());
  for (size_t i = 0; i < lives.size(); ++i) {
    if (owner[i] != i) continue;
    buffer_of[i] = buffers.size();
    const Value& value = *slots_[static_cast<size_t>(lives[i].slot)].value;
    buffers.push_back({static_cast<int64_t>(i), lives[i].first, lives[i].last + 1,
                       static_cast<int64_t>(dense_bytes(value, largest_))});
  }
  const MemoryPlan plan = plan_memory(buffers, {.alignment = 64});
  for (size_t i = 0; i < lives.size(); ++i) {
    slots_[static_cast<size_t>(lives[i].slot)].where = plan.offsets[buffer_of[owner[i]]];
  }
  arena_bytes_ = static_cast<size_t>(plan.total);
  lower_bound_bytes_ = static_cast<size_t>(plan.lower_bound);
}

TensorView Plan::view_of(const Slot& slot, const std::vector<int64_t>& dims, const std::vector<TensorView>& views,
                         const std::vector<std::byte*>& inputs, const std::vector<std::byte*>& outputs,
                         std::byte* arena) const {
  std::vector<int64_t> shape;
  for (int index : slot.dims) shape.push_back(dims[static_cast<size_t>(index)]);
  const DType dtype = slot.value->type().dtype;
  switch (slot.place) {
    case Place::kInput:
      return TensorView::dense(inputs[static_cast<size_t>(slot.where)], dtype, shape);
    case Place::kOutput:
      return TensorView::dense(outputs[static_cast<size_t>(slot.where)], dtype, shape);
    case Place::kArena:
      return TensorView::dense(arena + slot.where, dtype, shape);
    case Place::kConstant:
      // Kernels only read constants; views are writable in type alone.
      return TensorView::dense(const_cast<std::byte*>(constant_bytes(*slot.value->constant())), dtype, shape);
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

Frame Plan::resolve(const Bindings& bindings, const std::vector<std::byte*>& inputs,
                    const std::vector<std::byte*>& outputs, std::byte* arena) const {
  for (const auto& [symbol, value] : bindings) {
    const auto limit = largest_.find(symbol);
    require(limit != largest_.end() && value <= limit->second, Code::kInternal, "[plan] ", symbol, " = ", value,
            " is beyond this plan's bucket");
  }
  std::vector<int64_t> dims;
  for (const Dim& dim : dims_) dims.push_back(dim.eval(bindings));
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
    item.call.inputs = item.inputs;
    item.call.outputs = item.outputs;
  }
  for (const Value* output : program_.graph().outputs()) frame.results.push_back(view(output));
  return frame;
}

}  // namespace atb
