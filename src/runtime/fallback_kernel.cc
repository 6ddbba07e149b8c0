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

// Interprets a graph of the one node, so that operators without a reference kernel run their decomposition. The graph
// is made anew for each call, of its actual extents: a node's own shapes need not tell what its symbols are.
class FallbackKernel final : public Kernel {
 public:
  explicit FallbackKernel(const Node& node) : op_(node.op()), attrs_(node.attrs()) {
    for (const Value* input : node.inputs()) {
      inputs_.push_back(input != nullptr && input->is_constant() ? input->constant() : nullptr);
      present_.push_back(input != nullptr);
    }
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
      Graph graph(op_.name);
      std::map<std::string, RefTensor<float>> inputs;
      graph.set_outputs(add_node(graph, call, inputs).outputs());
      const std::vector<RefTensor<float>> outputs = interpret<float>(graph, inputs);
      for (size_t i = 0; i < outputs.size(); ++i) scatter(outputs[i], call.outputs[i]);
    } catch (const std::exception&) {
      if (call.fault != nullptr) call.fault->store(true);
    }
  }

  bool takes_any_strides() const override { return true; }
  std::string variant(const Call&) const override { return op_.name + "/definition"; }

 private:
  const Node& add_node(Graph& graph, const Call& call, std::map<std::string, RefTensor<float>>& inputs) const {
    std::vector<Value*> values;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!present_[i]) {
        values.push_back(nullptr);
      } else if (inputs_[i] != nullptr) {
        values.push_back(graph.add_constant(inputs_[i]));
      } else {
        const std::string name = "in" + std::to_string(i);
        const RefTensor<float>& tensor = inputs.emplace(name, gather(call.inputs[i])).first->second;
        values.push_back(graph.add_input(name, {tensor.dtype, Shape(tensor.shape.begin(), tensor.shape.end())}));
      }
    }
    return *graph.add_node(op_, std::move(values), actual_attrs(call));
  }

  Attrs actual_attrs(const Call& call) const {
    Attrs attrs = attrs_;
    size_t next = 0;
    for (const auto& [name, value] : attrs_.items()) {
      const auto* shape = std::get_if<Shape>(&value);
      if (shape == nullptr) continue;
      const auto first = call.dims.begin() + static_cast<std::ptrdiff_t>(next);
      next += shape->size();
      attrs.set(name, Shape(first, first + static_cast<std::ptrdiff_t>(shape->size())));
    }
    return attrs;
  }

  const OpDef& op_;
  Attrs attrs_;
  std::vector<ConstantRef> inputs_;  // null where the input is no constant
  std::vector<bool> present_;
};

}  // namespace

std::unique_ptr<Kernel> make_fallback_kernel(const Node& node) { return std::make_unique<FallbackKernel>(node); }

}  // namespace atb
