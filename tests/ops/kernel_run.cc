// SPDX-License-Identifier: Apache-2.0
#include "ops/kernel_run.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "ir/op.h"
#include "ops/kv_fixture.h"

namespace atb::testing {
namespace {

template <class To>
constexpr auto kAsIs = [](auto value) { return static_cast<To>(value); };

template <class To, class From, class Convert = decltype(kAsIs<To>)>
void store_as(const std::vector<From>& from, std::byte* to, Convert convert = kAsIs<To>) {
  for (size_t i = 0; i < from.size(); ++i) {
    const To value = convert(from[i]);
    std::memcpy(to + i * sizeof(To), &value, sizeof(To));
  }
}

template <class From, class To, class Convert = decltype(kAsIs<To>)>
void load_as(const std::byte* from, std::vector<To>& to, Convert convert = kAsIs<To>) {
  for (size_t i = 0; i < to.size(); ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    to[i] = convert(value);
  }
}

[[noreturn]] void no_such_tensor(DType dtype) {
  throw_error(Code::kInternal, "[harness] there are no tensors of ", dtype_name(dtype));
}

void store(const RefTensor<float>& tensor, std::byte* to) {
  switch (tensor.dtype) {
    case DType::kF32:
      if (!tensor.f.empty()) std::memcpy(to, tensor.f.data(), tensor.f.size() * sizeof(float));
      return;
    case DType::kF64:
      return store_as<double>(tensor.f, to);
    case DType::kF16:
      return store_as<uint16_t>(tensor.f, to, f32_to_f16);
    case DType::kBF16:
      return store_as<uint16_t>(tensor.f, to, f32_to_bf16);
    case DType::kI8:
      return store_as<int8_t>(tensor.i, to);
    case DType::kU8:
      return store_as<uint8_t>(tensor.i, to);
    case DType::kI32:
      return store_as<int32_t>(tensor.i, to);
    case DType::kI64:
      return store_as<int64_t>(tensor.i, to);
    case DType::kBool:
      return store_as<uint8_t>(tensor.i, to);
    default:
      no_such_tensor(tensor.dtype);
  }
}

void load(const std::byte* from, RefTensor<float>& tensor) {
  const auto size = static_cast<size_t>(tensor.size());
  (is_float(tensor.dtype) ? tensor.f.resize(size) : tensor.i.resize(size));
  switch (tensor.dtype) {
    case DType::kF32:
      if (size > 0) std::memcpy(tensor.f.data(), from, size * sizeof(float));
      return;
    case DType::kF64:
      return load_as<double>(from, tensor.f);
    case DType::kF16:
      return load_as<uint16_t>(from, tensor.f, f16_to_f32);
    case DType::kBF16:
      return load_as<uint16_t>(from, tensor.f, bf16_to_f32);
    case DType::kI8:
      return load_as<int8_t>(from, tensor.i);
    case DType::kU8:
      return load_as<uint8_t>(from, tensor.i);
    case DType::kI32:
      return load_as<int32_t>(from, tensor.i);
    case DType::kI64:
      return load_as<int64_t>(from, tensor.i);
    case DType::kBool:
      return load_as<uint8_t>(from, tensor.i);
    default:
      no_such_tensor(tensor.dtype);
  }
}

TensorView constant_view(const Constant& handle) {
  TensorView view = TensorView::dense(nullptr, handle.dtype(), handle.shape());
  view.data = const_cast<std::byte*>(handle.plain_bytes());  // kernels only read their inputs
  return view;
}

size_t bytes_of(const TensorView& view) { return static_cast<size_t>(view.size()) * dtype_size(view.dtype); }

std::vector<TensorView> output_shapes(const Node& node) {
  std::vector<TensorView> views;
  for (const Value* output : node.outputs()) {
    views.push_back(TensorView::dense(nullptr, output->type().dtype, eval(output->shape(), {})));
  }
  return views;
}

// Runs units [0, units) as `split` says; run(begin, end).
template <class Run>
void run_split(SplitKind split, int64_t units, const Run& run) {
  switch (split) {
    case SplitKind::kWhole:
      return run(0, units);
    case SplitKind::kHalves:
      run(0, units / 2);
      return run(units / 2, units);
    case SplitKind::kOneByOne:
      for (int64_t unit = 0; unit < units; ++unit) run(unit, unit + 1);
      return;
    case SplitKind::kBackwards:
      for (int64_t unit = units; unit-- > 0;) run(unit, unit + 1);
      return;
  }
}

}  // namespace

std::string describe(const RunWay& way) {
  if (way.team != nullptr) return "on " + std::to_string(way.team->size()) + " threads";
  std::string text = way.split == SplitKind::kWhole      ? "in one piece"
                     : way.split == SplitKind::kHalves   ? "in halves"
                     : way.split == SplitKind::kOneByOne ? "unit by unit"
                                                         : "unit by unit, backwards";
  if (way.in_place) text += ", in place";
  if (way.misalign > 0) text += ", misaligned by " + std::to_string(way.misalign) + " elements";
  return text;
}

bool same_bits(const KernelResult& a, const KernelResult& b) {
  if (a.outputs.size() != b.outputs.size() || a.cache != b.cache) return false;
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    if (!same_bits(a.outputs[i], b.outputs[i])) return false;
  }
  return true;
}

struct KernelRun::Memory {
  std::vector<TensorView> inputs, outputs;
  std::vector<std::unique_ptr<GuardedBuffer>> input_buffers;   // null where the input is no tensor
  std::vector<std::unique_ptr<GuardedBuffer>> output_buffers;  // null for states
  std::vector<bool> taken;                                     // inputs that an output is written over
};

void KernelRun::bind_inputs(const RunWay& way, Memory& memory) const {
  for (const Operand& operand : test_.inputs) {
    memory.inputs.emplace_back();
    memory.input_buffers.emplace_back();
    if (operand.state) memory.inputs.back() = TensorView::dense(nullptr, DType::kState, {});
    if (operand.constant != nullptr) memory.inputs.back() = constant_view(*operand.constant);
    if (!operand.tensor) continue;
    const RefTensor<float>& tensor = *operand.tensor;
    const size_t element = dtype_size(tensor.dtype);
    auto buffer = std::make_unique<GuardedBuffer>(static_cast<size_t>(tensor.size()) * element,
                                                  way.misalign * element + test_.misalign / element * element);
    store(tensor, buffer->data());
    memory.inputs.back() = TensorView::dense(buffer->data(), tensor.dtype, tensor.shape);
    memory.input_buffers.back() = std::move(buffer);
  }
  memory.taken.assign(memory.inputs.size(), false);
}

bool KernelRun::bind_outputs(const RunWay& way, Memory& memory) const {
  bool any_in_place = false;
  memory.outputs = output_shapes(node_);
  for (size_t i = 0; i < memory.outputs.size(); ++i) {
    TensorView& view = memory.outputs[i];
    memory.output_buffers.emplace_back();
    if (view.dtype == DType::kState) continue;
    const size_t element = dtype_size(view.dtype);
    auto buffer =
        std::make_unique<GuardedBuffer>(bytes_of(view), way.misalign * element + test_.misalign / element * element);
    view.data = buffer->data();
    memory.output_buffers.back() = std::move(buffer);
    const int source = i < node_.op().outputs.size() ? node_.op().outputs[i].in_place_of : -1;
    const auto from = static_cast<size_t>(std::max(source, 0));
    if (!way.in_place || source < 0 || from >= memory.inputs.size() || memory.taken[from]) continue;
    const TensorView& input = memory.inputs[from];
    const bool fits = memory.input_buffers[from] != nullptr && input.dtype == view.dtype && input.rank == view.rank &&
                      std::equal(input.shape.begin(), input.shape.begin() + input.rank, view.shape.begin());
    if (!fits) continue;
    if (bytes_of(view) > 0) std::memcpy(view.data, input.data, bytes_of(view));
    memory.inputs[from].data = view.data;
    memory.taken[from] = any_in_place = true;
  }
  return any_in_place;
}

void KernelRun::run_phases(const RunWay& way, Memory& memory) {
  const std::vector<SequenceStep> steps = test_.cache != nullptr ? test_.cache->steps() : test_.sequences;
  std::atomic<bool> flag = false;
  const std::vector<int64_t> dims = eval(attr_dims(node_.attrs()), {});
  Call call{memory.inputs, memory.outputs, steps, nullptr, &flag, dims};
  GuardedBuffer scratch(kernel_.scratch_bytes(call));
  call.scratch = scratch.data();
  const int threads = way.team == nullptr ? 1 : way.team->size();
  std::vector<std::unique_ptr<GuardedBuffer>> workers;
  for (int i = 0; i < threads; ++i) {
    workers.push_back(std::make_unique<GuardedBuffer>(kernel_.worker_scratch_bytes(call)));
  }
  const auto range = [&](int phase, int64_t begin, int64_t end, GuardedBuffer& worker) {
    if (begin >= end) return;
    worker.fill(std::byte{0xff});
    kernel_.run(call, phase, begin, end, worker.data());
  };
  for (int phase = 0; phase < kernel_.phases(); ++phase) {
    const int64_t units = kernel_.units(call, phase);
    if (way.team == nullptr) {
      run_split(way.split, units, [&](int64_t begin, int64_t end) { range(phase, begin, end, *workers[0]); });
      continue;
    }
    const int64_t parts = kernel_.wants_whole_range(call, phase) ? threads : int64_t{3} * threads;
    std::atomic<int64_t> next = 0;
    way.team->run([&](int worker) {
      for (int64_t part = next++; part < parts; part = next++) {
        range(phase, units * part / parts, units * (part + 1) / parts, *workers[static_cast<size_t>(worker)]);
      }
    });
  }
  if (flag) fault("set the fault flag");
  if (!scratch.intact()) fault("wrote outside its scratch");
  for (const auto& worker : workers) {
    if (!worker->intact()) fault("wrote outside its worker scratch");
  }
}

void KernelRun::check(const RunWay& way, const Memory& memory) {
  for (size_t i = 0; i < memory.output_buffers.size(); ++i) {
    if (memory.output_buffers[i] != nullptr && !memory.output_buffers[i]->intact()) {
      fault("wrote outside output " + std::to_string(i) + " (" + describe(way) + ")");
    }
  }
  for (size_t i = 0; i < memory.input_buffers.size(); ++i) {
    const auto& buffer = memory.input_buffers[i];
    if (buffer == nullptr) continue;
    std::vector<std::byte> before(buffer->size());
    store(*test_.inputs[i].tensor, before.data());
    if (!buffer->intact() || !std::equal(before.begin(), before.end(), buffer->data())) {
      fault("wrote to input " + std::to_string(i) + " (" + describe(way) + ")");
    }
  }
  if (test_.cache != nullptr && !test_.cache->intact()) fault("wrote outside the blocks of the cache");
}

std::optional<KernelResult> KernelRun::run(const RunWay& way) {
  if (test_.cache != nullptr) test_.cache->reset();
  Memory memory;
  bind_inputs(way, memory);
  if (!bind_outputs(way, memory) && way.in_place) return std::nullopt;
  run_phases(way, memory);
  check(way, memory);
  KernelResult result;
  for (size_t i = 0; i < memory.outputs.size(); ++i) {
    result.outputs.push_back({memory.outputs[i].dtype, eval(node_.output(i)->shape(), {}), {}, {}, nullptr});
    if (memory.output_buffers[i] != nullptr) load(memory.output_buffers[i]->data(), result.outputs.back());
  }
  if (test_.cache != nullptr) result.cache = test_.cache->bytes();
  return result;
}

std::string KernelRun::variant() {
  Memory memory;
  bind_inputs({}, memory);
  const std::vector<SequenceStep> steps = test_.cache != nullptr ? test_.cache->steps() : test_.sequences;
  memory.outputs = output_shapes(node_);
  return kernel_.variant({memory.inputs, memory.outputs, steps, nullptr});
}

void KernelRun::fault(const std::string& what) {
  const std::string text = node_.op_name() + " " + what;
  if (std::find(faults_.begin(), faults_.end(), text) == faults_.end()) faults_.push_back(text);
}

}  // namespace atb::testing
