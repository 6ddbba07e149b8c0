// SPDX-License-Identifier: Apache-2.0
// Constant folding through the interpreter: the one definition of what operators compute.
#include "passes/fold_constants.h"

#include <algorithm>
#include <cstring>

#include "ir/interpreter.h"
#include "ir/op.h"
#include "passes/engine/rewriter.h"

namespace atb {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 20;

bool small(const Type& type) {
  const Dim elements = num_elements(type.shape);
  return elements.is_constant() && elements.constant() * static_cast<int64_t>(dtype_size(type.dtype)) <= kMaxBytes;
}

bool foldable(const Node& node) {
  if (node.op().has_state || node.op().fused || node.is("external") || node.inputs().empty()) return false;
  const auto plain = [](const Value* value) {
    return value == nullptr ||
           (value->is_constant() && !value->constant()->absent() && value->constant()->encoding() == nullptr);
  };
  if (!std::all_of(node.inputs().begin(), node.inputs().end(), plain)) return false;
  const Shape dims = attr_dims(node.attrs());
  if (!std::all_of(dims.begin(), dims.end(), [](const Dim& dim) { return dim.is_constant(); })) return false;
  return std::all_of(node.outputs().begin(), node.outputs().end(),
                     [](const Value* value) { return small(value->type()); });
}

template <class Stored, class Source, class Convert>
StorageRef pack(const std::vector<Source>& values, Convert convert) {
  std::vector<std::byte> bytes(values.size() * sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    const Stored stored = convert(values[i]);
    std::memcpy(bytes.data() + i * sizeof(Stored), &stored, sizeof(Stored));
  }
  return storage_from_bytes(std::move(bytes));
}

template <class Stored, class Source>
StorageRef pack(const std::vector<Source>& values) {
  return pack<Stored>(values, [](Source value) { return static_cast<Stored>(value); });
}

StorageRef stored(const RefTensor<float>& tensor) {
  switch (tensor.dtype) {
    case DType::kF32:
      return pack<float>(tensor.f);
    case DType::kF64:
      return pack<double>(tensor.f);
    case DType::kF16:
      return pack<uint16_t>(tensor.f, f32_to_f16);
    case DType::kBF16:
      return pack<uint16_t>(tensor.f, f32_to_bf16);
    case DType::kI8:
      return pack<int8_t>(tensor.i);
    case DType::kU8:
    case DType::kBool:
      return pack<uint8_t>(tensor.i);
    case DType::kI32:
      return pack<int32_t>(tensor.i);
    case DType::kI64:
      return pack<int64_t>(tensor.i);
    case DType::kState:
      break;
  }
  throw_error(Code::kInternal, "[fold_constants] a state is no constant");
}

// Runs a graph of this node alone.
std::vector<RefTensor<float>> evaluate(const Node& node) {
  Graph alone("fold");
  std::vector<Value*> inputs;
  for (const Value* input : node.inputs()) {
    inputs.push_back(input == nullptr ? nullptr : alone.add_constant(input->constant()));
  }
  const Node* copy = alone.add_node(node.op(), inputs, node.attrs(), node.name() + ".folded");
  alone.set_outputs(copy->outputs());
  return interpret<float>(alone, {});
}

}  // namespace

bool fold_node(const Node& node, Rewriter& rewriter) {
  if (!foldable(node)) return false;
  const std::vector<RefTensor<float>> results = evaluate(node);
  for (size_t i = 0; i < results.size(); ++i) {
    const RefTensor<float>& result = results[i];
    rewriter.replace(node.output(i),
                     rewriter.constant(Constant::from_storage(node.output(i)->name(), result.dtype, nullptr,
                                                              result.shape, stored(result), 0)));
  }
  return true;
}

int64_t fold_constants(Graph& graph) {
  int64_t folded = 0;
  for (Node* node : std::vector<Node*>(graph.nodes())) {  // in order: folded inputs are constants by now
    Rewriter rewriter(graph, node);
    if (!fold_node(*node, rewriter)) continue;
    rewriter.retire({node});
    if (!rewriter.commit()) ++folded;
  }
  return folded;
}

}  // namespace atb
