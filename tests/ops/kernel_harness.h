// SPDX-License-Identifier: Apache-2.0
// The operator harness: one operator call, run by the interpreter in f32 and f64 and by its CPU kernel, the kernel with
// its units split in several ways, whose results must be the same bits.
//
//   OpRun run = run_op({.op = "rms_norm", .inputs = {activation({2, 8}, x), weight({8}, w)}, .attrs = {{"eps",
//   1e-5}}}); EXPECT_LT(max_error(run.kernel[0], run.f64[0]), 1e-6);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/constant.h"
#include "ir/builder.h"
#include "ir/interpreter.h"
#include "ir/kernel.h"
#include "ir/op.h"

namespace atb::testing {

// One input of the call: a constant, a tensor of the step, a state (neither), or absent.
struct Operand {
  std::optional<RefTensor<float>> tensor;
  ConstantRef constant;
  bool state = false;
  bool absent() const { return !tensor && constant == nullptr && !state; }
};

inline Operand activation(std::vector<int64_t> shape, std::vector<float> values) {
  return {RefTensor<float>{DType::kF32, std::move(shape), std::move(values), {}, nullptr}, nullptr};
}

// i32 unless said; bools are 0 and 1.
inline Operand integers(std::vector<int64_t> shape, std::vector<int64_t> values, DType dtype = DType::kI32) {
  return {RefTensor<float>{dtype, std::move(shape), {}, std::move(values), nullptr}, nullptr};
}

inline Operand constant(ConstantRef handle) { return {std::nullopt, std::move(handle)}; }

// A constant in f32, or encoded (the encoding must have an encoder; the oracle sees the decoded values).
inline Operand weight(std::vector<int64_t> shape, const std::vector<float>& values,
                      const Encoding* encoding = nullptr) {
  if (encoding == nullptr) return constant(Constant::from_f32("w", std::move(shape), values));
  const auto blocks = static_cast<int64_t>(values.size()) / encoding->block_elems;
  std::vector<std::byte> bytes(static_cast<size_t>(blocks * encoding->block_bytes));
  encoding->encode(values.data(), blocks, bytes.data());
  return constant(
      Constant::from_storage("w", DType::kF32, encoding, std::move(shape), storage_from_bytes(std::move(bytes)), 0));
}

inline Operand state() { return {std::nullopt, nullptr, true}; }
inline Operand no_operand() { return {}; }

// Values in [-scale, scale], the same for a seed on every machine.
inline std::vector<float> random_values(int64_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 generator(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = scale * (static_cast<float>(generator() >> 8) * 0x1p-23f - 1.0f);
  }
  return values;
}

struct OpCase {
  std::string op;
  std::vector<Operand> inputs;
  Attrs attrs = {};
  Precision precision = Precision::kExact;
  size_t misalign = 0;  // bytes by which activations and outputs miss 64-byte alignment; a multiple of the element
  const KvLayout* kv = nullptr;  // for operators with state: layout and the ragged step
  std::vector<SequenceStep> sequences =
      {};  // their blocks are the caller's; every split of the units writes them again
  std::vector<RefSequence> ref_sequences = {};  // the same step for the interpreter
  bool with_reference = true;                   // false: only the kernel runs
};

struct OpRun {
  std::vector<RefTensor<float>> f32;     // interpreter
  std::vector<RefTensor<double>> f64;    // interpreter
  std::vector<RefTensor<float>> kernel;  // CPU kernel; empty if the operator has none for this call
  std::string variant;
};

// Largest |a - b| over the largest |b|: an error relative to the scale of the result. NaN where either has NaN.
inline double max_error(const RefTensor<float>& a, const RefTensor<double>& b) {
  if (a.shape != b.shape || a.f.size() != b.f.size()) return std::nan("");
  double error = 0;
  double scale = 0;
  for (size_t i = 0; i < a.f.size(); ++i) {
    if (std::isnan(a.f[i]) || std::isnan(b.f[i])) return std::nan("");
    if (static_cast<double>(a.f[i]) != b.f[i]) error = std::max(error, std::abs(static_cast<double>(a.f[i]) - b.f[i]));
    scale = std::max(scale, std::abs(b.f[i]));
  }
  return error == 0 ? 0 : error / std::max(scale, 1e-30);
}

inline bool same_bits(const RefTensor<float>& a, const RefTensor<float>& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.i == b.i && a.f.size() == b.f.size() &&
         (a.f.empty() || std::memcmp(a.f.data(), b.f.data(), a.f.size() * sizeof(float)) == 0);
}

// Memory with known bytes on both sides, so that writes outside are seen; filled with 0xff (NaN in f32).
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t bytes, size_t misalign = 0)
      : bytes_(bytes), memory_(bytes + 3 * kGuard + misalign, std::byte{0xff}) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    start_ = (address + kGuard + 63) / 64 * 64 - address + misalign;
    std::fill_n(memory_.begin(), start_, kMark);
    std::fill(memory_.begin() + static_cast<std::ptrdiff_t>(start_ + bytes_), memory_.end(), kMark);
  }
  std::byte* data() { return memory_.data() + start_; }
  size_t size() const { return bytes_; }
  void fill(std::byte value) { std::fill_n(data(), bytes_, value); }
  bool intact() const {
    const auto marked = [](std::byte b) { return b == kMark; };
    return std::all_of(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(start_), marked) &&
           std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(start_ + bytes_), memory_.end(), marked);
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr std::byte kMark{0xa5};
  size_t bytes_;
  size_t start_ = 0;
  std::vector<std::byte> memory_;
};

// Runs `call`. Fails the running test where splits differ in a bit or the kernel writes outside its outputs.
inline OpRun run_op(const OpCase& test);

namespace internal {

template <class To>
void store_as(const std::vector<int64_t>& from, std::byte* to) {
  for (size_t i = 0; i < from.size(); ++i) {
    const To value = static_cast<To>(from[i]);
    std::memcpy(to + i * sizeof(To), &value, sizeof(To));
  }
}

template <class From>
void load_as(const std::byte* from, std::vector<int64_t>& to) {
  for (size_t i = 0; i < to.size(); ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    to[i] = static_cast<int64_t>(value);
  }
}

inline void store(const RefTensor<float>& tensor, std::byte* to) {
  switch (tensor.dtype) {
    case DType::kF32:
      if (!tensor.f.empty()) std::memcpy(to, tensor.f.data(), tensor.f.size() * sizeof(float));
      return;
    case DType::kI32:
      return store_as<int32_t>(tensor.i, to);
    case DType::kI64:
      return store_as<int64_t>(tensor.i, to);
    case DType::kBool:
      return store_as<uint8_t>(tensor.i, to);
    default:
      FAIL() << "the harness has no tensors of " << dtype_name(tensor.dtype);
  }
}

inline void load(const std::byte* from, RefTensor<float>& tensor) {
  const auto size = static_cast<size_t>(tensor.size());
  (is_float(tensor.dtype) ? tensor.f.resize(size) : tensor.i.resize(size));
  switch (tensor.dtype) {
    case DType::kF32:
      if (size > 0) std::memcpy(tensor.f.data(), from, size * sizeof(float));
      return;
    case DType::kI32:
      return load_as<int32_t>(from, tensor.i);
    case DType::kI64:
      return load_as<int64_t>(from, tensor.i);
    case DType::kBool:
      return load_as<uint8_t>(from, tensor.i);
    default:
      FAIL() << "the harness has no tensors of " << dtype_name(tensor.dtype);
  }
}

enum class SplitKind { kWhole, kOneByOne, kHalves, kBackwards };

// One kernel with its operands in memory.
class KernelRun {
 public:
  KernelRun(const OpCase& test, const Node& node, Kernel& kernel) : test_(test), node_(node), kernel_(kernel) {
    for (const Operand& operand : test.inputs) inputs_.push_back(input_view(operand));
  }

  // Outputs that may be written over an input are, if asked; returns false where there is none such.
  bool run(SplitKind split, bool in_place, std::vector<RefTensor<float>>& results) {
    std::vector<TensorView> inputs = inputs_;
    std::vector<TensorView> outputs;
    std::vector<std::unique_ptr<GuardedBuffer>> buffers;
    std::vector<bool> taken(inputs.size(), false);
    bool any_in_place = false;
    for (size_t i = 0; i < node_.outputs().size(); ++i) {
      const Type& type = node_.output(i)->type();
      const std::vector<int64_t> shape = eval(type.shape, {});
      const TensorView shape_only = TensorView::dense(nullptr, type.dtype, shape);
      const size_t bytes = static_cast<size_t>(shape_only.size()) * dtype_size(type.dtype);
      buffers.push_back(std::make_unique<GuardedBuffer>(bytes, test_.misalign));
      outputs.push_back(shape_only);
      outputs.back().data = type.dtype == DType::kState ? nullptr : buffers.back()->data();
      const int source = i < node_.op().outputs.size() ? node_.op().outputs[i].in_place_of : -1;
      const auto from = static_cast<size_t>(std::max(source, 0));
      if (!in_place || source < 0 || from >= inputs.size() || taken[from]) continue;
      if (!test_.inputs[from].tensor || test_.inputs[from].tensor->shape != shape) continue;
      if (bytes > 0) std::memcpy(buffers.back()->data(), inputs[from].data, bytes);
      inputs[from].data = buffers.back()->data();
      taken[from] = any_in_place = true;
    }
    if (in_place && !any_in_place) return false;
    run_phases({inputs, outputs, test_.sequences, nullptr}, split);
    results.clear();
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_TRUE(buffers[i]->intact()) << node_.op_name() << " wrote outside output " << i;
      const Type& type = node_.output(i)->type();
      results.push_back({type.dtype, eval(type.shape, {}), {}, {}, nullptr});
      if (type.dtype != DType::kState) load(buffers[i]->data(), results.back());
    }
    return true;
  }

  std::string variant() {
    std::vector<TensorView> outputs;
    for (const Value* output : node_.outputs()) {
      outputs.push_back(TensorView::dense(nullptr, output->type().dtype, eval(output->shape(), {})));
    }
    return kernel_.variant({inputs_, outputs, test_.sequences, nullptr});
  }

 private:
  TensorView input_view(const Operand& operand) {
    if (operand.absent()) return {};
    if (operand.state) return TensorView::dense(nullptr, DType::kState, {});
    if (operand.constant != nullptr) {
      const Constant& handle = *operand.constant;
      TensorView view = TensorView::dense(nullptr, handle.dtype(), handle.shape());
      const bool one_piece = handle.encoding() == nullptr && handle.segments().size() == 1 &&
                             handle.segments()[0].row_map == nullptr && handle.num_bytes() > 0;
      // Kernels only read their inputs.
      if (one_piece) view.data = const_cast<std::byte*>(handle.row(0));
      return view;
    }
    const RefTensor<float>& tensor = *operand.tensor;
    const size_t bytes = static_cast<size_t>(tensor.size()) * dtype_size(tensor.dtype);
    memory_.push_back(std::make_unique<GuardedBuffer>(bytes, test_.misalign));
    store(tensor, memory_.back()->data());
    return TensorView::dense(memory_.back()->data(), tensor.dtype, tensor.shape);
  }

  void run_phases(Call call, SplitKind split) {
    GuardedBuffer scratch(kernel_.scratch_bytes(call));
    GuardedBuffer worker(kernel_.worker_scratch_bytes(call));
    call.scratch = scratch.data();
    const auto range = [&](int phase, int64_t begin, int64_t end) {
      worker.fill(std::byte{0xff});
      if (begin < end) kernel_.run(call, phase, begin, end, worker.data());
    };
    for (int phase = 0; phase < kernel_.phases(); ++phase) {
      const int64_t units = kernel_.units(call, phase);
      switch (split) {
        case SplitKind::kWhole:
          range(phase, 0, units);
          break;
        case SplitKind::kOneByOne:
          for (int64_t unit = 0; unit < units; ++unit) range(phase, unit, unit + 1);
          break;
        case SplitKind::kHalves:
          range(phase, 0, units / 2);
          range(phase, units / 2, units);
          break;
        case SplitKind::kBackwards:
          for (int64_t unit = units; unit-- > 0;) range(phase, unit, unit + 1);
          break;
      }
    }
    EXPECT_TRUE(scratch.intact()) << node_.op_name() << " wrote outside its scratch";
    EXPECT_TRUE(worker.intact()) << node_.op_name() << " wrote outside its worker scratch";
  }

  const OpCase& test_;
  const Node& node_;
  Kernel& kernel_;
  std::vector<std::unique_ptr<GuardedBuffer>> memory_;
  std::vector<TensorView> inputs_;
};

template <class T>
RefTensor<T> as_tensor(const RefTensor<float>& from) {
  return {from.dtype, from.shape, std::vector<T>(from.f.begin(), from.f.end()), from.i, nullptr};
}

template <class T>
std::vector<RefTensor<T>> interpret_case(const Graph& graph, const OpCase& test) {
  std::map<std::string, RefTensor<T>> tensors;
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    if (test.inputs[i].tensor) tensors["in" + std::to_string(i)] = as_tensor<T>(*test.inputs[i].tensor);
  }
  return interpret<T>(graph, tensors, test.ref_sequences);
}

}  // namespace internal

// The one-node graph of a case: inputs "in0", "in1", ... (constants keep their names), outputs those of the node.
inline Node* build_op_graph(Graph& graph, const OpCase& test) {
  std::vector<Value*> values;
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    const Operand& operand = test.inputs[i];
    const std::string name = "in" + std::to_string(i);
    if (operand.absent()) {
      values.push_back(nullptr);
    } else if (operand.constant != nullptr) {
      values.push_back(graph.add_constant(operand.constant));
    } else if (operand.state) {
      values.push_back(graph.add_input(name, {DType::kState, {}}));
    } else {
      const auto& shape = operand.tensor->shape;
      values.push_back(graph.add_input(name, {operand.tensor->dtype, Shape(shape.begin(), shape.end())}));
    }
  }
  Node* node = Builder(graph).node(test.op, values, test.attrs, "out");
  graph.set_outputs(node->outputs());
  return node;
}

inline OpRun run_op(const OpCase& test) {
  Graph graph;
  const Node* node = build_op_graph(graph, test);
  OpRun result;
  if (test.with_reference) {
    result.f32 = internal::interpret_case<float>(graph, test);
    result.f64 = internal::interpret_case<double>(graph, test);
  }
  if (!node->op().make_cpu_kernel) return result;
  PackedStore store;
  const std::unique_ptr<Kernel> kernel = node->op().make_cpu_kernel({*node, store, test.precision, test.kv});
  if (kernel == nullptr) return result;
  internal::KernelRun run(test, *node, *kernel);
  result.variant = run.variant();
  run.run(internal::SplitKind::kWhole, false, result.kernel);
  using internal::SplitKind;
  for (const SplitKind split : {SplitKind::kOneByOne, SplitKind::kHalves, SplitKind::kBackwards, SplitKind::kWhole}) {
    const bool in_place = split == SplitKind::kWhole;  // the last round: over the inputs
    std::vector<RefTensor<float>> again;
    if (!run.run(split, in_place, again)) continue;
    for (size_t i = 0; i < again.size(); ++i) {
      EXPECT_TRUE(same_bits(result.kernel[i], again[i]))
          << test.op << ": output " << i << " differs " << (in_place ? "in place" : "between splits of its units");
    }
  }
  return result;
}

}  // namespace atb::testing
