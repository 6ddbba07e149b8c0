// SPDX-License-Identifier: Apache-2.0
// One operator call through program, plan and executor, its activations laid out in memory as a caller may pass them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "devices/device.h"
#include "ops/kernel_harness.h"
#include "runtime/executor.h"

namespace atb::testing {

// How the elements of a tensor lie in memory.
enum class MemoryOrder {
  kDense,
  kPaddedRows,   // rows (last axis) inside wider ones, as slices of a packed buffer
  kPermuted,     // the axes before the last in reverse order
  kStridedLast,  // every second element of wider rows
  kLastFirst,    // the last axis outermost: a transposed matrix
};
constexpr MemoryOrder kStridedOrders[] = {MemoryOrder::kPaddedRows, MemoryOrder::kPermuted, MemoryOrder::kStridedLast,
                                          MemoryOrder::kLastFirst};

inline std::vector<int64_t> strides_of(const std::vector<int64_t>& shape, MemoryOrder order) {
  std::vector<size_t> axes(shape.size());  // outermost first
  std::iota(axes.begin(), axes.end(), size_t{0});
  if (order == MemoryOrder::kPermuted && !axes.empty()) std::reverse(axes.begin(), axes.end() - 1);
  if (order == MemoryOrder::kLastFirst && !axes.empty()) std::rotate(axes.begin(), axes.end() - 1, axes.end());
  std::vector<int64_t> strides(shape.size());
  int64_t step = order == MemoryOrder::kStridedLast ? 2 : 1;
  for (size_t i = axes.size(); i-- > 0;) {
    strides[axes[i]] = step;
    step *= std::max<int64_t>(shape[axes[i]], 1);
    if (order == MemoryOrder::kPaddedRows && i + 1 == axes.size()) step += 3;
  }
  return strides;
}

// A tensor in memory under the given strides; all other bytes are 0xff (NaN in floats).
class LaidOutTensor {
 public:
  LaidOutTensor(const RefTensor<float>& tensor, const std::vector<int64_t>& strides) {
    view_ = TensorView::dense(nullptr, tensor.dtype, tensor.shape);
    int64_t last = 0;
    for (size_t i = 0; i < strides.size(); ++i) {
      view_.stride[i] = strides[i];
      last += strides[i] * std::max<int64_t>(tensor.shape[i] - 1, 0);
    }
    const size_t element = dtype_size(tensor.dtype);
    memory_.assign(static_cast<size_t>(last + 1) * element, std::byte{0xff});
    view_.data = memory_.data();
    for (int64_t n = 0; n < tensor.size(); ++n)
      put(tensor, n, memory_.data() + static_cast<size_t>(offset(n)) * element);
  }
  const TensorView& view() const { return view_; }

 private:
  int64_t offset(int64_t index) const {
    int64_t at = 0;
    for (int axis = view_.rank - 1; axis >= 0; --axis) {
      const auto i = static_cast<size_t>(axis);
      at += index % view_.shape[i] * view_.stride[i];
      index /= view_.shape[i];
    }
    return at;
  }
  static void put(const RefTensor<float>& tensor, int64_t index, std::byte* to) {
    const auto i = static_cast<size_t>(index);
    const auto store = [to](auto value) { std::memcpy(to, &value, sizeof(value)); };
    if (tensor.dtype == DType::kF32) return store(tensor.f[i]);
    if (tensor.dtype == DType::kBF16) return store(f32_to_bf16(tensor.f[i]));
    if (tensor.dtype == DType::kBool) return store(static_cast<uint8_t>(tensor.i[i]));
    if (tensor.dtype == DType::kI64) return store(tensor.i[i]);
    store(static_cast<int32_t>(tensor.i[i]));
  }

  std::vector<std::byte> memory_;
  TensorView view_;
};

// Bytes of all outputs of the call on the given views of its activations (in the order of its operands).
inline std::vector<std::vector<std::byte>> run_on_views(const OpCase& test, const std::vector<TensorView>& activations,
                                                        int threads = 2) {
  auto graph = std::make_unique<Graph>();
  build_op_graph(*graph, test);
  PackedStore store;
  const Program program(std::move(graph), find_device("cpu"), store,
                        {.precision = test.precision, .kv = test.kv, .strided_inputs = true});
  const Plan plan(program, {});
  std::vector<TensorView> inputs;
  size_t next = 0;
  for (const Value* input : program.graph().inputs()) {
    const bool state = input->type().dtype == DType::kState;
    inputs.push_back(state ? TensorView::dense(nullptr, DType::kState, {}) : activations.at(next++));
  }
  std::vector<std::vector<std::byte>> results;
  std::vector<std::byte*> outputs;
  for (const Value* output : program.graph().outputs()) {
    const bool state = output->type().dtype == DType::kState;
    const int64_t elements = state ? 0 : num_elements(output->shape()).eval({});
    results.emplace_back(static_cast<size_t>(elements) * dtype_size(output->type().dtype), std::byte{0xee});
  }
  for (auto& result : results) outputs.push_back(result.empty() ? nullptr : result.data());
  std::vector<std::byte> arena(plan.arena_bytes());
  Frame frame = plan.resolve({}, inputs, outputs, arena.data());
  ThreadTeam team(threads);
  Executor(team).run(program, frame, test.sequences);
  return results;
}

// The call with every activation in one memory order.
inline std::vector<std::vector<std::byte>> run_in_order(const OpCase& test, MemoryOrder order) {
  std::vector<std::unique_ptr<LaidOutTensor>> tensors;
  std::vector<TensorView> views;
  for (const Operand& operand : test.inputs) {
    if (!operand.tensor) continue;
    tensors.push_back(std::make_unique<LaidOutTensor>(*operand.tensor, strides_of(operand.tensor->shape, order)));
    views.push_back(tensors.back()->view());
  }
  return run_on_views(test, views);
}

}  // namespace atb::testing
