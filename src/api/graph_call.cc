// SPDX-License-Identifier: Apache-2.0
#include "api/graph_call.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"

namespace atb {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kI64, DType::kBool};

size_t bytes_of(const ArrayView& array, const std::string& name) {
  size_t bytes = dtype_size(dtype_of(array.type));
  for (const int64_t extent : array.shape) {
    const bool fits = extent >= 0 && !__builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes);
    require(fits, Code::kInvalidArgument, "[GraphOp] ", name, ": extent ", extent, " is impossible");
  }
  return bytes;
}

// The dims of an input: B, T and S where they are the call's, numbers elsewhere.
struct Dims {
  int64_t batch = 0, tokens = 0, keys = 0;
  int64_t past = -1;  // tokens in the cache; -1: there is none

  Dim token(int64_t extent) const { return extent == tokens ? block_symbol("T") : Dim(extent); }
  Dim key(int64_t extent) const {
    if (extent != keys) return extent;
    return keys == tokens ? block_symbol("T") : block_symbol("S");
  }
  Dim sequence(int64_t extent) const { return extent == batch ? block_symbol("B") : Dim(extent); }

  // Keys of a mask: all that the cache holds, or the call's own.
  Dim masked(int64_t extent) const {
    if (past < 0) return key(extent);
    require(extent == past + keys, Code::kInvalidArgument, "[GraphOp] attention_mask is for ", extent,
            " keys, expected ", past + keys, ": the ", past, " in the cache and the call's ", keys);
    return block_symbol("S");
  }

  Shape of(const std::string& name, const std::vector<int64_t>& shape) const {
    Shape dims(shape.begin(), shape.end());
    if (dims.empty()) return dims;
    const bool per_token = name == "positions" && dims.size() == 1;
    dims.front() = per_token ? token(shape.front()) : sequence(shape.front());
    if (name == "attention_mask") {
      dims.back() = masked(shape.back());
      if (dims.size() > 2) dims[dims.size() - 2] = token(shape[dims.size() - 2]);
    } else if (dims.size() > 1) {
      dims[1] = name == "key" || name == "value" ? key(shape[1]) : token(shape[1]);
    }
    return dims;
  }
};

}  // namespace

DType dtype_of(ElementType type) { return kTypes[static_cast<size_t>(type)]; }

ElementType element_type(DType dtype) {
  const auto* found = std::find(std::begin(kTypes), std::end(kTypes), dtype);
  require(found != std::end(kTypes), Code::kUnsupported, "[GraphOp] the output is ", dtype_name(dtype));
  return static_cast<ElementType>(found - std::begin(kTypes));
}

ConstantRef constant_of(const std::string& name, const ArrayView& array) {
  const auto* data = static_cast<const std::byte*>(array.data);
  std::vector<std::byte> bytes(data, data + bytes_of(array, name));
  return Constant::from_storage(name, dtype_of(array.type), nullptr, array.shape, storage_from_bytes(std::move(bytes)),
                                0);
}

std::vector<std::pair<std::string, const ArrayView*>> given_inputs(const GraphCall& call) {
  const std::pair<std::string, const ArrayView*> all[] = {
      {"x", &call.x},
      {"key", &call.key},
      {"value", &call.value},
      {"residual", &call.residual},
      {"attention_mask", &call.attention_mask},
      {"positions", &call.positions},
  };
  std::vector<std::pair<std::string, const ArrayView*>> given;
  std::copy_if(std::begin(all), std::end(all), std::back_inserter(given),
               [](const auto& input) { return input.second->data != nullptr; });
  return given;
}

std::vector<TensorView> views_of(const GraphCall& call) {
  std::vector<TensorView> views;
  for (const auto& [name, array] : given_inputs(call)) {
    bytes_of(*array, name);
    views.push_back(TensorView::dense(static_cast<std::byte*>(const_cast<void*>(array->data)), dtype_of(array->type),
                                      array->shape));
  }
  return views;
}

BlockCall form_of(const GraphCall& call, DType parameters, int64_t past) {
  const size_t rank = call.x.shape.size();
  require(call.x.data != nullptr && (rank == 2 || rank == 3), Code::kInvalidArgument, "[GraphOp] x has ", rank,
          " axes; expected [batch, tokens, features], or token ids [batch, tokens]");
  const ArrayView& keys = call.key.data != nullptr ? call.key : call.value.data != nullptr ? call.value : call.x;
  require(keys.shape.size() == rank, Code::kInvalidArgument, "[GraphOp] key or value has ", keys.shape.size(),
          " axes, expected ", rank);
  const Dims dims{call.x.shape[0], call.x.shape[1], keys.shape[1], past};
  BlockCall form;
  form.dtype = parameters;
  for (const auto& [name, array] : given_inputs(call)) {
    form.inputs.emplace_back(name, Type{dtype_of(array->type), dims.of(name, array->shape)});
  }
  return form;
}

std::string key_of(const BlockCall& form) {
  std::string key(dtype_name(form.dtype));
  for (const auto& [name, type] : form.inputs) key += ";" + name + ":" + type.str();
  for (const BlockPlugin& plugin : form.plugins) {
    key += ";" + plugin.point + "," + plugin.before + "," + plugin.after + "," + std::to_string(plugin.layer);
  }
  return key;
}

}  // namespace atb
