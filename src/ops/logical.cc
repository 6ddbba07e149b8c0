// SPDX-License-Identifier: Apache-2.0
// logical_and, logical_or, logical_not: elementwise on bools.
#include "ops/elementwise_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_logical(const InferArgs& args) {
  Shape shape = args.type(0).shape;
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    require_bool(args, i);
    shape = broadcast_shape(args, shape, args.type(i).shape);
  }
  return {{DType::kBool, std::move(shape)}};
}

template <class Function>
void register_connective(OpRegistry& registry, std::string name, const char* word, Function function) {
  OpDef op;
  op.name = name;
  op.doc = std::string("out = a ") + word + " b of bools, elementwise with numpy broadcasting.";
  op.inputs = {{"a"}, {"b"}};
  op.outputs = {{"out", -1, 0}};
  op.infer = infer_logical;
  op.reference = reference_kernel([function](auto& call) { reference_binary(call, function, function); });
  op.make_cpu_kernel = [name, function](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    if (!plain_operands(request.node)) return nullptr;
    return make_binary_kernel<uint8_t, uint8_t>(
        name + "_bool", [function](uint8_t a, uint8_t b) -> uint8_t { return function(a, b) ? 1 : 0; });
  };
  registry.add(std::move(op));
}

void register_not(OpRegistry& registry) {
  OpDef op;
  op.name = "logical_not";
  op.doc = "out = not x of bools, elementwise.";
  op.inputs = {{"x"}};
  op.outputs = {{"out", -1, 0}};
  op.infer = infer_logical;
  op.reference = reference_kernel([](auto& call) {
    const auto& x = call.inputs[0]->i;
    for (size_t i = 0; i < x.size(); ++i) call.outputs[0]->i[i] = x[i] == 0 ? 1 : 0;
  });
  op.make_cpu_kernel = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    if (!plain_operands(request.node)) return nullptr;
    return make_unary_kernel<uint8_t, uint8_t>("logical_not_bool", [](uint8_t x) -> uint8_t { return x == 0 ? 1 : 0; });
  };
  registry.add(std::move(op));
}

}  // namespace

void register_op_logical(OpRegistry& registry) {
  register_connective(registry, "logical_and", "and", [](auto a, auto b) { return a != 0 && b != 0; });
  register_connective(registry, "logical_or", "or", [](auto a, auto b) { return a != 0 || b != 0; });
  register_not(registry);
}

}  // namespace atb
