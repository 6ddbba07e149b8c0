// SPDX-License-Identifier: Apache-2.0
// Declared blocks for applications: the block builder behind the public header.
#include "atb/graph_op.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>

#include "api/compiled_graph.h"
#include "blocks/block.h"
#include "core/constant.h"
#include "core/error.h"
#include "ir/text.h"

namespace atb {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kI64, DType::kBool};
constexpr size_t kMaxForms = 8;  // kept; each has packed weights of its own

DType dtype_of(ElementType type) { return kTypes[static_cast<size_t>(type)]; }

ElementType element_type(DType dtype) {
  const auto* found = std::find(std::begin(kTypes), std::end(kTypes), dtype);
  require(found != std::end(kTypes), Code::kUnsupported, "[GraphOp] the output is ", dtype_name(dtype));
  return static_cast<ElementType>(found - std::begin(kTypes));
}

Attr to_attr(const GraphItem::Option& option) {
  return std::visit([](const auto& value) -> Attr { return value; }, option);
}

std::vector<BlockItem> to_items(const std::vector<GraphItem>& given) {
  std::vector<BlockItem> items;
  for (const GraphItem& one : given) {
    BlockItem item{one.kind, one.name};
    for (const auto& [name, option] : one.options) item.attrs.set(name, to_attr(option));
    for (const auto& branch : one.branches) item.branches.push_back(to_items(branch));
    items.push_back(std::move(item));
  }
  return items;
}

size_t bytes_of(const ArrayView& array, const std::string& name) {
  size_t bytes = dtype_size(dtype_of(array.type));
  for (const int64_t extent : array.shape) {
    const bool fits = extent >= 0 && !__builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes);
    require(fits, Code::kInvalidArgument, "[GraphOp] ", name, ": extent ", extent, " is impossible");
  }
  return bytes;
}

ConstantRef constant_of(const std::string& name, const ArrayView& array) {
  const auto* data = static_cast<const std::byte*>(array.data);
  std::vector<std::byte> bytes(data, data + bytes_of(array, name));
  return Constant::from_storage(name, dtype_of(array.type), nullptr, array.shape, storage_from_bytes(std::move(bytes)),
                                0);
}

// The dims of an input: B, T and S where they are the call's, numbers elsewhere.
struct Dims {
  int64_t batch = 0, tokens = 0, keys = 0;

  Dim token(int64_t extent) const { return extent == tokens ? block_symbol("T") : Dim(extent); }
  Dim key(int64_t extent) const {
    if (extent != keys) return extent;
    return keys == tokens ? block_symbol("T") : block_symbol("S");
  }
  Dim sequence(int64_t extent) const { return extent == batch ? block_symbol("B") : Dim(extent); }

  Shape of(const std::string& name, const std::vector<int64_t>& shape) const {
    Shape dims(shape.begin(), shape.end());
    if (dims.empty()) return dims;
    const bool per_token = name == "positions" && dims.size() == 1;
    dims.front() = per_token ? token(shape.front()) : sequence(shape.front());
    if (name == "attention_mask") {
      dims.back() = key(shape.back());
      if (dims.size() > 2) dims[dims.size() - 2] = token(shape[dims.size() - 2]);
    } else if (dims.size() > 1) {
      dims[1] = name == "key" || name == "value" ? key(shape[1]) : token(shape[1]);
    }
    return dims;
  }
};

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

BlockCall form_of(const GraphCall& call, DType parameters) {
  const size_t rank = call.x.shape.size();
  require(call.x.data != nullptr && (rank == 2 || rank == 3), Code::kInvalidArgument, "[GraphOp] x has ", rank,
          " axes; expected [batch, tokens, features], or token ids [batch, tokens]");
  const ArrayView& keys = call.key.data != nullptr ? call.key : call.value.data != nullptr ? call.value : call.x;
  require(keys.shape.size() == rank, Code::kInvalidArgument, "[GraphOp] key or value has ", keys.shape.size(),
          " axes, expected ", rank);
  const Dims dims{call.x.shape[0], call.x.shape[1], keys.shape[1]};
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
  return key;
}

}  // namespace

struct GraphOp::Impl {
  Impl(std::vector<BlockItem> items, const GraphOpOptions& given) : block(std::move(items)), options(given) {}

  // The dtype of the parameters: that of the first that was set.
  DType dtype() const { return set.empty() ? DType::kF32 : set.begin()->second->dtype(); }

  std::shared_ptr<CompiledGraph> compile(BlockCall form) const {
    for (const auto& [name, constant] : set) form.shapes[name] = constant->shape();
    BlockGraph built = block.graph(form);
    for (const BlockParameter& parameter : built.parameters) {
      const auto it = set.find(parameter.name);
      require(it != set.end(), Code::kFailedPrecondition, "[GraphOp] parameter ", parameter.name,
              " was not set; set_parameter() each of parameters()");
      bind_constant(*built.graph, it->second);
    }
    CompileOptions compile_options;
    compile_options.threads = options.threads;
    return std::make_shared<CompiledGraph>(std::move(built.graph), compile_options);
  }

  std::shared_ptr<CompiledGraph> compiled_for(const GraphCall& call) {
    const std::lock_guard held(mutex);
    const BlockCall form = form_of(call, dtype());
    const std::string key = key_of(form);
    const auto it = std::find_if(forms.begin(), forms.end(), [&](const auto& kept) { return kept.first == key; });
    if (it != forms.end()) {
      std::rotate(it, it + 1, forms.end());
    } else {
      forms.emplace_back(key, compile(form));
      if (forms.size() > kMaxForms) forms.erase(forms.begin());
    }
    return forms.back().second;
  }

  const Block block;
  const GraphOpOptions options;
  mutable std::mutex mutex;  // guards what follows
  std::map<std::string, ConstantRef> set;
  std::vector<std::pair<std::string, std::shared_ptr<CompiledGraph>>> forms;  // by form of call, the last one last
};

GraphOp::GraphOp(std::vector<GraphItem> items, const GraphOpOptions& options)
    : impl_(std::make_unique<Impl>(to_items(items), options)) {}

GraphOp::~GraphOp() = default;

std::vector<GraphParameter> GraphOp::parameters(int64_t features) const {
  require(features >= 0, Code::kInvalidArgument, "[GraphOp] features ", features, " must not be negative");
  const Dim batch = block_symbol("B"), tokens = block_symbol("T");
  const Type x = features == 0 ? Type{DType::kI64, {batch, tokens}} : Type{DType::kF32, {batch, tokens, features}};
  std::vector<GraphParameter> result;
  for (BlockParameter& parameter : impl_->block.graph({.inputs = {{"x", x}}}).parameters) {
    result.push_back({std::move(parameter.name), std::move(parameter.shape)});
  }
  return result;
}

void GraphOp::set_parameter(const std::string& name, const ArrayView& values) {
  const std::vector<std::string> names = impl_->block.parameter_names();
  require(std::find(names.begin(), names.end(), name) != names.end(), Code::kNotFound,
          "[GraphOp] there is no parameter ", name);
  require(values.data != nullptr, Code::kInvalidArgument, "[GraphOp] parameter ", name, ": no data");
  ConstantRef constant = constant_of(name, values);
  const std::lock_guard held(impl_->mutex);
  impl_->set[name] = std::move(constant);
  impl_->forms.clear();
}

Array GraphOp::operator()(const GraphCall& call) {
  const std::shared_ptr<CompiledGraph> compiled = impl_->compiled_for(call);
  std::vector<TensorView> views;
  for (const auto& [name, array] : given_inputs(call)) {
    bytes_of(*array, name);
    views.push_back(TensorView::dense(static_cast<std::byte*>(const_cast<void*>(array->data)), dtype_of(array->type),
                                      array->shape));
  }
  Tensor output = std::move(compiled->run(views).front());
  return {output.data, element_type(output.dtype), output.shape};
}

std::string GraphOp::graph_text() const {
  const std::lock_guard held(impl_->mutex);
  require(!impl_->forms.empty(), Code::kFailedPrecondition, "[GraphOp] nothing is compiled yet; call the block once");
  return print(impl_->forms.back().second->graph());
}

}  // namespace atb
