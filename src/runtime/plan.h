// SPDX-License-Identifier: Apache-2.0
// A program laid out in memory for one shape bucket: every buffer has a fixed offset in one arena.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/dim.h"
#include "core/tensor.h"
#include "ir/kernel.h"
#include "passes/assign_buffers.h"
#include "runtime/program.h"

namespace atb {

// Operand views of one step. Views stay valid while the arena, the inputs and the outputs stay where they are.
struct Frame {
  struct Item {
    std::vector<TensorView> inputs;
    std::vector<TensorView> outputs;
    std::vector<int64_t> dims;
    Call call;  // spans over the three above; scratch and sequences are filled by the executor
  };
  std::vector<Item> items;          // parallel to Program::items()
  std::vector<TensorView> results;  // graph outputs; those of type state have no data
  // What host kernels get as HostCall::memory.
  std::shared_ptr<const void> memory = nullptr;
};

class Plan {
 public:
  // `largest` binds every symbol to the largest value that a step of this bucket may have.
  Plan(const Program& program, Bindings largest);

  const Bindings& largest() const { return largest_; }
  size_t arena_bytes() const { return arena_bytes_; }
  size_t lower_bound_bytes() const { return lower_bound_bytes_; }  // largest set of buffers alive at once

  // Resolves every operand for a step: `inputs` and `outputs` are the memory of the graph's inputs and outputs in order
  // (null for state values; dense). `bindings` may not exceed `largest`.
  Frame resolve(const Bindings& bindings, const std::vector<std::byte*>& inputs, const std::vector<std::byte*>& outputs,
                std::byte* arena) const;
  // The same with inputs of any strides (0 too) where the program was made for strided_inputs. kInvalidArgument where a
  // view has another dtype or shape than its input, or is not contiguous though needs_contiguous() says so.
  Frame resolve(const Bindings& bindings, const std::vector<TensorView>& inputs, const std::vector<std::byte*>& outputs,
                std::byte* arena) const;
  // True where a reshape reads this input in place.
  bool needs_contiguous(size_t input) const;

 private:
  enum class Place { kNone, kInput, kOutput, kConstant, kArena, kAlias };

  // Where a value lives: an input or output by index, an arena offset, or the value that it is a view of.
  struct Slot {
    const Value* value = nullptr;
    Place place = Place::kNone;
    int64_t where = 0;
    std::vector<int> dims;  // indices into dims_
  };

  int slot_of(const Value* value) const { return slot_index_.at(value); }
  int intern(const Dim& dim);
  void add_slot(const Value* value, Place place, int64_t where);
  void add_slots(const BufferPlan& buffers);
  std::vector<int64_t> eval_dims(const Bindings& bindings) const;
  std::vector<int64_t> shape_of(const Slot& slot, const std::vector<int64_t>& dims) const;
  Frame frame_of(const std::vector<int64_t>& dims, const std::vector<TensorView>& inputs,
                 const std::vector<std::byte*>& outputs, std::byte* arena) const;
  void check_input(size_t index, const TensorView& view, const std::vector<int64_t>& dims) const;
  TensorView view_of(const Slot& slot, const std::vector<int64_t>& dims, const std::vector<TensorView>& views,
                     const std::vector<TensorView>& inputs, const std::vector<std::byte*>& outputs,
                     std::byte* arena) const;

  const Program& program_;
  Bindings largest_;
  std::vector<Dim> dims_;  // distinct extents of the graph
  std::vector<Slot> slots_;
  std::vector<std::vector<int>> attr_dims_;  // of each item, as Slot::dims
  std::unordered_map<const Value*, int> slot_index_;
  size_t arena_bytes_ = 0;
  size_t lower_bound_bytes_ = 0;
};

}  // namespace atb
