// SPDX-License-Identifier: Apache-2.0
#include "runtime/fallback_kernel.h"

#include <array>
#include <cstring>
#include <map>

#include "ir/interpreter.h"
#include "ir/op.h"

namespace atb {
namespace {

// Calls visit(element pointer) for every element of a strided view, row-major.
template <class Visit>
void for_each_element(const TensorView& view, Visit visit) {
  const size_t bytes = dtype_size(view.dtype);
  std::array<int64_t, kMaxRank> index{};
  for (int64_t n = view.size(); n > 0; --n) {
    int64_t offset = 0;
    for (int axis = 0; axis < view.rank; ++axis) {
      offset += index[static_cast<size_t>(axis)] * view.stride[static_cast<size_t>(axis)];
    }
    visit(view.data + static_cast<size_t>(offset) * bytes);
    for (int axis = view.rank - 1; axis >= 0; --axis) {
      if (++index[static_cast<size_t>(axis)] < view.shape[static_cast<size_t>(axis)]) break;
      index[static_cast<size_t>(axis)] = 0;
    }
  }
}

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

int64_t load_integer(DType dtype, const std::byte* p) {
  switch (dtype) {
    case DType::kI64:
      return load<int64_t>(p);
    case DType::kI32:
      return load<int32_t>(p);
    case DType::kI8:
      return load<int8_t>(p);
    default:
      return load<uint8_t>(p);
  }
}

void store_integer(DType dtype, int64_t value, std::byte* p) {
  const auto put = [&](auto typed) { std::memcpy(p, &typed, sizeof(typed)); };
  switch (dtype) {
    case DType::kI64:
      return put(value);
    case DType::kI32:
      return put(static_cast<int32_t>(value));
    case DType::kI8:
      return put(static_cast<int8_t>(value));
    default:
      return put(static_cast<uint8_t>(value));
  }
}

RefTensor<float> gather(const TensorView& view) {
  RefTensor<float> tensor;
  tensor.dtype = view.dtype;
  tensor.shape.assign(view.shape.begin(), view.shape.begin() + view.rank);
  if (is_float(view.dtype)) {
    tensor.f.reserve(static_cast<size_t>(view.size()));
    for_each_element(view, [&](const std::byte* p) {
      float value = 0;
      decode_f32(view.dtype, nullptr, p, 1, &value);
      tensor.f.push_back(value);
    });
  } else {
    tensor.i.reserve(static_cast<size_t>(view.size()));
    for_each_element(view, [&](const std::byte* p) { tensor.i.push_back(load_integer(view.dtype, p)); });
  }
  return tensor;
}

void scatter(const RefTensor<float>& tensor, const TensorView& view) {
  size_t next = 0;
  if (!is_float(view.dtype)) {
    for_each_element(view, [&](std::byte* p) { store_integer(view.dtype, tensor.i[next++], p); });
    return;
  }
  for_each_element(view, [&](std::byte* p) {
    const float value = tensor.f[next++];
    switch (view.dtype) {
      case DType::kF16: {
        const uint16_t bits = f32_to_f16(value);
        std::memcpy(p, &bits, sizeof(bits));
        break;
      }
      case DType::kBF16: {
        const uint16_t bits = f32_to_bf16(value);
        std::memcpy(p, &bits, sizeof(bits));
        break;
      }
      case DType::kF64: {
        const double wide = value;
        std::memcpy(p, &wide, sizeof(wide));
        break;
      }
      default:
        std::memcpy(p, &value, sizeof(value));
    }
  });
}

// Interprets a graph of the one node, so that operators without a reference kernel run their decomposition.
class FallbackKernel final : public Kernel {
 public:
  explicit FallbackKernel(const Node& node) : op_name_(node.op_name()), graph_(node.op_name()) {
    std::vector<Value*> inputs;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      const Value* input = node.inputs()[i];
      if (input == nullptr) {
        inputs.push_back(nullptr);
      } else if (input->is_constant()) {
        inputs.push_back(graph_.add_constant(input->constant()));
      } else {
        inputs.push_back(graph_.add_input(input_name(i), input->type()));
      }
    }
    Node* copy = graph_.add_node(node.op(), std::move(inputs), node.attrs(), node.name());
    graph_.set_outputs(copy->outputs());
  }

  int64_t units(const Call&, int) const noexcept override { return 1; }

  double cost(const Call& call, int) const noexcept override {
    double elements = 0;
    for (const TensorView& output : call.outputs) elements += static_cast<double>(output.size());
    return 64 * elements;
  }

  void run(const Call& call, int, int64_t begin, int64_t end, std::byte*) const noexcept override {
    if (begin >= end) return;
    try {
      std::map<std::string, RefTensor<float>> inputs;
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        if (graph_.find_input(input_name(i)) != nullptr) inputs.emplace(input_name(i), gather(call.inputs[i]));
      }
      const std::vector<RefTensor<float>> outputs = interpret<float>(graph_, inputs);
      for (size_t i = 0; i < outputs.size(); ++i) scatter(outputs[i], call.outputs[i]);
    } catch (const std::exception&) {
      if (call.fault != nullptr) call.fault->store(true);
    }
  }

  bool takes_any_strides() const override { return true; }
  std::string variant(const Call&) const override { return op_name_ + "/definition"; }

 private:
  static std::string input_name(size_t index) { return "in" + std::to_string(index); }

  std::string op_name_;
  Graph graph_;
};

}  // namespace

std::unique_ptr<Kernel> make_fallback_kernel(const Node& node) { return std::make_unique<FallbackKernel>(node); }

}  // namespace atb
