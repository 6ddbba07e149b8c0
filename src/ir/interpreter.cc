// SPDX-License-Identifier: Apache-2.0
// The reference interpreter: walks a graph in order, on reference kernels or on decompositions.
#include "ir/interpreter.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "ir/builder.h"
#include "ir/op.h"

namespace atb {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) { return to_string(Shape(shape.begin(), shape.end())); }

[[noreturn]] void fail_input(const Value& input, const std::string& what) {
  throw_error(Code::kInvalidArgument, "[interpreter] input ", input.name(), ": ", what);
}

// Checks a given extent against the declared one; binds a symbol that stands alone and is not bound yet. False where
// the extent depends on symbols that other axes must bind first.
bool bind_extent(const Value& input, const std::vector<int64_t>& actual, size_t axis, Bindings& bindings) {
  const Dim& declared = input.shape()[axis];
  SymbolRanges symbols;
  collect_symbols(declared, symbols);
  if (symbols.size() == 1) {
    const auto& [name, range] = *symbols.begin();
    const bool alone = declared.str() == name;
    if (alone && (actual[axis] < range.lo || actual[axis] > range.hi)) {
      fail_input(input, "shape " + shape_text(actual) + ": " + name + " must lie in [" + std::to_string(range.lo) +
                            ", " + std::to_string(range.hi) + "]");
    }
    if (alone) bindings.try_emplace(name, actual[axis]);
  }
  for (const auto& [name, range] : symbols) {
    if (!bindings.contains(name)) return false;
  }
  const int64_t expected = declared.eval(bindings);
  if (expected != actual[axis]) {
    fail_input(input, "shape " + shape_text(actual) + ", expected " + to_string(input.shape()) + " with " +
                          declared.str() + " = " + std::to_string(expected));
  }
  return true;
}

// Values of the graph's symbols from the shapes of its inputs, which are checked against the declared types.
template <class T>
Bindings bind_symbols(const Graph& graph, const std::map<std::string, RefTensor<T>>& inputs) {
  Bindings bindings;
  std::vector<std::pair<const Value*, size_t>> later;
  for (const Value* input : graph.inputs()) {
    if (input->type().dtype == DType::kState) continue;
    const auto it = inputs.find(input->name());
    if (it == inputs.end()) fail_input(*input, "is missing, expected " + input->type().str());
    const RefTensor<T>& tensor = it->second;
    const bool fits = tensor.dtype == input->type().dtype && tensor.shape.size() == input->shape().size();
    if (!fits) {
      fail_input(*input, std::string(dtype_name(tensor.dtype)) + shape_text(tensor.shape) + ", expected " +
                             input->type().str());
    }
    const auto elements = static_cast<int64_t>(is_float(tensor.dtype) ? tensor.f.size() : tensor.i.size());
    if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t d) { return d < 0; }) ||
        elements != tensor.size()) {
      fail_input(*input, std::to_string(elements) + " elements for shape " + shape_text(tensor.shape));
    }
    for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      if (!bind_extent(*input, tensor.shape, axis, bindings)) later.emplace_back(input, axis);
    }
  }
  for (const auto& [input, axis] : later) {
    if (!bind_extent(*input, inputs.at(input->name()).shape, axis, bindings)) {
      fail_input(*input, input->shape()[axis].str() + " has a symbol that no input binds");
    }
  }
  return bindings;
}

template <class T>
RefTensor<T> tensor_of_constant(const Constant& constant) {
  RefTensor<T> tensor;
  tensor.dtype = constant.dtype();
  tensor.shape = constant.shape();
  if (is_float(tensor.dtype)) {
    const std::vector<float> values = constant.to_f32();
    tensor.f.assign(values.begin(), values.end());
    return tensor;
  }
  const auto append = [&]<class Element>(Element) {
    for (int64_t row = 0; row < constant.num_rows(); ++row) {
      const std::byte* bytes = constant.row(row);
      for (int64_t i = 0; i < constant.row_elems(); ++i) {
        Element element;
        std::copy_n(bytes + static_cast<size_t>(i) * sizeof(element), sizeof(element),
                    reinterpret_cast<std::byte*>(&element));
        tensor.i.push_back(static_cast<int64_t>(element));
      }
    }
  };
  switch (tensor.dtype) {
    case DType::kI8:
      append(int8_t{});
      break;
    case DType::kI32:
      append(int32_t{});
      break;
    case DType::kI64:
      append(int64_t{});
      break;
    default:
      append(uint8_t{});
  }
  return tensor;
}

// One pass over a graph. Tensors are dropped after their last reader, so that whole models fit.
template <class T>
class Pass {
 public:
  Pass(const Graph& graph, const Bindings& bindings, const std::vector<RefSequence>& sequences)
      : graph_(graph), bindings_(bindings), sequences_(sequences) {
    for (const Node* node : graph.nodes()) {
      for (const Value* input : node->inputs()) last_reader_[input] = node;
    }
  }

  void set(const Value* value, std::shared_ptr<const RefTensor<T>> tensor) { tensors_[value] = std::move(tensor); }

  std::vector<std::shared_ptr<const RefTensor<T>>> run() {
    for (const Node* node : graph_.nodes()) {
      run_node(*node);
      drop_after(*node);
    }
    std::vector<std::shared_ptr<const RefTensor<T>>> results;
    for (const Value* output : graph_.outputs()) results.push_back(tensor(output));
    return results;
  }

 private:
  std::shared_ptr<const RefTensor<T>> tensor(const Value* value) {
    const auto it = tensors_.find(value);
    if (it != tensors_.end()) return it->second;
    require(value->is_constant(), Code::kInternal, "[interpreter] ", value->name(), " is read before it is computed");
    return tensors_[value] = std::make_shared<const RefTensor<T>>(tensor_of_constant<T>(*value->constant()));
  }

  void drop_after(const Node& node) {
    for (const Value* input : node.inputs()) {
      if (input != nullptr && last_reader_[input] == &node && !graph_.is_output(input)) tensors_.erase(input);
    }
  }

  void run_node(const Node& node) {
    std::vector<std::shared_ptr<const RefTensor<T>>> inputs;
    for (const Value* input : node.inputs()) inputs.push_back(input == nullptr ? nullptr : tensor(input));
    if (!node.op().reference) return run_decomposition(node, inputs);

    RefCall<T> call{node, {}, {}, sequences_, bindings_};
    for (const auto& input : inputs) call.inputs.push_back(input.get());
    std::vector<std::shared_ptr<RefTensor<T>>> outputs;
    for (const Value* output : node.outputs()) {
      outputs.push_back(std::make_shared<RefTensor<T>>(make_output(node, *output, inputs)));
      call.outputs.push_back(outputs.back().get());
    }
    if constexpr (std::is_same_v<T, float>) {
      node.op().reference.f32(call);
    } else {
      node.op().reference.f64(call);
    }
    for (size_t i = 0; i < outputs.size(); ++i) tensors_[node.output(i)] = outputs[i];
  }

  RefTensor<T> make_output(const Node& node, const Value& output,
                           const std::vector<std::shared_ptr<const RefTensor<T>>>& inputs) const {
    RefTensor<T> result;
    result.dtype = output.type().dtype;
    if (result.dtype == DType::kState) {
      for (const auto& input : inputs) {
        if (input != nullptr && input->state != nullptr) result.state = input->state;
      }
      require(result.state != nullptr, Code::kInternal, "[interpreter] ", node.name(), ": a state from nowhere");
      return result;
    }
    result.shape = eval(output.shape(), bindings_);
    for (const int64_t extent : result.shape) {
      require(extent >= 0, Code::kInvalidArgument, "[interpreter] ", output.name(), ": negative extent in ",
              shape_text(result.shape));
    }
    const auto size = static_cast<size_t>(result.size());
    if (is_float(result.dtype)) {
      result.f.resize(size);
    } else {
      result.i.resize(size);
    }
    return result;
  }

  void run_decomposition(const Node& node, const std::vector<std::shared_ptr<const RefTensor<T>>>& inputs) {
    Graph graph(node.op_name());
    Builder builder(graph);
    std::vector<Value*> values;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Value* input = node.input(i);
      if (input == nullptr) {
        values.push_back(nullptr);
      } else if (input->is_constant()) {
        values.push_back(graph.add_constant(input->constant()));
      } else {
        values.push_back(graph.add_input("input" + std::to_string(i), input->type()));
      }
    }
    const std::vector<Value*> results = node.op().decompose(builder, values, node.attrs());
    require(results.size() == node.outputs().size(), Code::kInternal, "[interpreter] ", node.name(),
            ": its decomposition has ", results.size(), " outputs, the node ", node.outputs().size());
    graph.set_outputs(results);
    Pass inner(graph, bindings_, sequences_);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (values[i] != nullptr) inner.set(values[i], inputs[i]);
    }
    const auto tensors = inner.run();
    for (size_t i = 0; i < tensors.size(); ++i) tensors_[node.output(i)] = tensors[i];
  }

  const Graph& graph_;
  const Bindings& bindings_;
  const std::vector<RefSequence>& sequences_;
  std::unordered_map<const Value*, const Node*> last_reader_;
  std::unordered_map<const Value*, std::shared_ptr<const RefTensor<T>>> tensors_;
};

bool has_state(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node* node) { return node->op().has_state; });
}

// One sequence of all rows: the first extent of the first tensor input.
std::vector<RefSequence> single_sequence(const Graph& graph, const Bindings& bindings) {
  for (const Value* input : graph.inputs()) {
    if (input->rank() > 0) return {{0, 0, input->dim(0).eval(bindings), 0}};
  }
  return {};
}

// The caller's state is copied: a failed or repeated run must not change it.
template <class T>
std::shared_ptr<const RefTensor<T>> state_tensor(const RefTensor<T>* given) {
  auto tensor = std::make_shared<RefTensor<T>>();
  tensor->dtype = DType::kState;
  tensor->state = given != nullptr && given->state != nullptr ? std::make_shared<RefKvState<T>>(*given->state)
                                                              : std::make_shared<RefKvState<T>>();
  return tensor;
}

}  // namespace

template <class T>
std::vector<RefTensor<T>> interpret(const Graph& graph, const std::map<std::string, RefTensor<T>>& inputs,
                                    const std::vector<RefSequence>& sequences) {
  for (const auto& [name, tensor] : inputs) {
    require(graph.find_input(name) != nullptr, Code::kInvalidArgument, "[interpreter] the graph has no input ", name);
  }
  const Bindings bindings = bind_symbols(graph, inputs);
  const bool fill_in = sequences.empty() && has_state(graph);
  const std::vector<RefSequence> steps = fill_in ? single_sequence(graph, bindings) : sequences;

  Pass<T> pass(graph, bindings, steps);
  for (const Value* input : graph.inputs()) {
    const auto it = inputs.find(input->name());
    const RefTensor<T>* given = it == inputs.end() ? nullptr : &it->second;
    if (input->type().dtype == DType::kState) {
      pass.set(input, state_tensor(given));
    } else {
      pass.set(input, std::shared_ptr<const RefTensor<T>>(std::shared_ptr<void>(), given));  // borrowed
    }
  }
  std::vector<RefTensor<T>> results;
  for (const auto& tensor : pass.run()) results.push_back(*tensor);
  return results;
}

template std::vector<RefTensor<float>> interpret(const Graph&, const std::map<std::string, RefTensor<float>>&,
                                                 const std::vector<RefSequence>&);
template std::vector<RefTensor<double>> interpret(const Graph&, const std::map<std::string, RefTensor<double>>&,
                                                  const std::vector<RefSequence>&);

}  // namespace atb
