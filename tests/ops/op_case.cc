// SPDX-License-Identifier: Apache-2.0
#include "ops/op_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "ops/kv_fixture.h"

namespace atb::testing {
namespace {

ConstantRef half_weight(std::vector<int64_t> shape, const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * 2);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = dtype == DType::kF16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
  return Constant::from_storage("w", dtype, nullptr, std::move(shape), storage_from_bytes(std::move(bytes)), 0);
}

template <class T>
RefTensor<T> as_tensor(const RefTensor<float>& from) {
  return {from.dtype, from.shape, std::vector<T>(from.f.begin(), from.f.end()), from.i, nullptr};
}

}  // namespace

Operand activation(std::vector<int64_t> shape, std::vector<float> values) {
  return {RefTensor<float>{DType::kF32, std::move(shape), std::move(values), {}, nullptr}, nullptr};
}

Operand integers(std::vector<int64_t> shape, std::vector<int64_t> values, DType dtype) {
  return {RefTensor<float>{dtype, std::move(shape), {}, std::move(values), nullptr}, nullptr};
}

Operand constant(ConstantRef handle) { return {std::nullopt, std::move(handle)}; }

Operand weight(std::vector<int64_t> shape, const std::vector<float>& values, const Encoding* encoding) {
  if (encoding == nullptr) return constant(Constant::from_f32("w", std::move(shape), values));
  const auto blocks = static_cast<int64_t>(values.size()) / encoding->block_elems;
  std::vector<std::byte> bytes(static_cast<size_t>(blocks * encoding->block_bytes));
  encoding->encode(values.data(), blocks, bytes.data());
  return constant(
      Constant::from_storage("w", DType::kF32, encoding, std::move(shape), storage_from_bytes(std::move(bytes)), 0));
}

Operand weight_as(const std::string& format, std::vector<int64_t> shape, const std::vector<float>& values) {
  if (format == "f32") return weight(std::move(shape), values);
  if (format == "f16") return constant(half_weight(std::move(shape), values, DType::kF16));
  if (format == "bf16") return constant(half_weight(std::move(shape), values, DType::kBF16));
  return weight(std::move(shape), values, find_encoding(format));
}

Operand state() { return {std::nullopt, nullptr, true}; }
Operand no_operand() { return {}; }

std::vector<float> random_values(int64_t count, uint32_t seed, float scale) {
  std::mt19937 generator(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = scale * (static_cast<float>(generator() >> 8) * 0x1p-23f - 1.0f);
  }
  return values;
}

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

Node* build_op_graph(Graph& graph, const OpCase& test) {
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

std::unique_ptr<Kernel> make_case_kernel(const OpCase& test, const Node& node, PackedStore& store) {
  if (!node.op().make_cpu_kernel) return nullptr;
  const KvLayout* kv = test.cache != nullptr ? &test.cache->layout() : test.kv;
  return node.op().make_cpu_kernel({node, store, test.precision, kv});
}

template <class T>
std::vector<RefTensor<T>> interpret_case(const Graph& graph, const OpCase& test) {
  std::map<std::string, RefTensor<T>> tensors;
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    const std::string name = "in" + std::to_string(i);
    if (test.inputs[i].tensor) tensors[name] = as_tensor<T>(*test.inputs[i].tensor);
    if (test.inputs[i].state && test.cache != nullptr) {
      tensors[name] = {DType::kState, {}, {}, {}, test.cache->state<T>()};
    }
  }
  return interpret<T>(graph, tensors, test.cache != nullptr ? test.cache->ref_steps() : test.ref_sequences);
}

template std::vector<RefTensor<float>> interpret_case(const Graph&, const OpCase&);
template std::vector<RefTensor<double>> interpret_case(const Graph&, const OpCase&);

double max_error(const RefTensor<float>& a, const RefTensor<double>& b) {
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

bool same_bits(const RefTensor<float>& a, const RefTensor<float>& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.i == b.i && a.f.size() == b.f.size() &&
         (a.f.empty() || std::memcmp(a.f.data(), b.f.data(), a.f.size() * sizeof(float)) == 0);
}

}  // namespace atb::testing
