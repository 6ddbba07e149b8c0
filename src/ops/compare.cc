// SPDX-License-Identifier: Apache-2.0
// less, less_equal, equal: elementwise comparisons.
#include <functional>

#include "ops/elementwise_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_comparison(const InferArgs& args) {
  require_no_state(args);
  require_same_kind(args, 0, 1);
  return {{DType::kBool, broadcast_shape(args, args.type(0).shape, args.type(1).shape)}};
}

template <class Element, class Function>
std::unique_ptr<Kernel> comparison_kernel(std::string variant, Function function) {
  return make_binary_kernel<Element, uint8_t>(
      std::move(variant), [function](Element a, Element b) -> uint8_t { return function(a, b) ? 1 : 0; });
}

template <class Function>
void register_comparison(OpRegistry& registry, std::string name, const char* symbol, Function function) {
  OpDef op;
  op.name = name;
  op.doc = std::string("out = a ") + symbol +
           " b as bool, elementwise with numpy broadcasting; both floats, or both integers or bools. NaN gives false.";
  op.inputs = {{"a"}, {"b"}};
  op.infer = infer_comparison;
  op.reference = reference_kernel([function](auto& call) { reference_binary(call, function, function); });
  op.make_cpu_kernel = [name, function](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    const DType a = request.node.input(0)->type().dtype;
    if (a != request.node.input(1)->type().dtype || !plain_operands(request.node)) return nullptr;
    if (a == DType::kF32) return comparison_kernel<float>(name + "_f32", function);
    if (a == DType::kI32) return comparison_kernel<int32_t>(name + "_i32", function);
    if (a == DType::kI64) return comparison_kernel<int64_t>(name + "_i64", function);
    if (a == DType::kBool) return comparison_kernel<uint8_t>(name + "_bool", function);
    return nullptr;
  };
  registry.add(std::move(op));
}

}  // namespace

void register_op_compare(OpRegistry& registry) {
  register_comparison(registry, "less", "<", std::less<>());
  register_comparison(registry, "less_equal", "<=", std::less_equal<>());
  register_comparison(registry, "equal", "==", std::equal_to<>());
}

}  // namespace atb
