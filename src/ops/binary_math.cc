// SPDX-License-Identifier: Apache-2.0
// pow, maximum, minimum, floor_divide, remainder: functions of two operands, elementwise with numpy broadcasting.
#include "ops/binary_math_util.h"
#include "ops/elementwise_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_numbers(const InferArgs& args) {
  require_no_state(args);
  require_same_kind(args, 0, 1);
  const DType dtype = result_dtype(args);
  const bool orders = args.op.name == "maximum" || args.op.name == "minimum";
  if (dtype == DType::kBool && !orders) args.fail("no arithmetic on bools; cast them");
  return {{dtype, broadcast_shape(args, args.type(0).shape, args.type(1).shape)}};
}

template <class Function>
std::unique_ptr<Kernel> binary_math_kernel(const std::string& name, DType dtype, Function function) {
  switch (dtype) {
    case DType::kF32:
      return make_binary_kernel<float, float>(name + "_f32", function);
    case DType::kI32:
      return make_binary_kernel<int32_t, int32_t>(name + "_i32", function);
    case DType::kI64:
      return make_binary_kernel<int64_t, int64_t>(name + "_i64", function);
    case DType::kBool:
      return make_binary_kernel<uint8_t, uint8_t>(name + "_bool", [function](uint8_t a, uint8_t b) -> uint8_t {
        return function(int{a}, int{b}) != 0 ? 1 : 0;
      });
    default:
      return nullptr;
  }
}

// Integers whose divisor may be 0, which has no result: the step fails.
template <class Element, class Function>
std::unique_ptr<Kernel> division_kernel(std::string variant, Function function) {
  return make_elementwise_kernel<2, Element, Element>(
      std::move(variant), {0, 1},
      [function](int64_t n, Element* out, const std::array<const Element*, 2>& in,
                 const std::array<int64_t, 2>& stride) {
        bool defined = true;
        for (int64_t i = 0; i < n; ++i) {
          const Element divisor = in[1][i * stride[1]];
          defined = defined && divisor != 0;
          out[i] = divisor != 0 ? function(in[0][i * stride[0]], divisor) : Element{0};
        }
        return defined;
      });
}

OpDef binary(const std::string& name, std::string doc) {
  OpDef op;
  op.name = name;
  op.doc = std::move(doc);
  op.inputs = {{"a"}, {"b"}};
  op.outputs = {{"out", -1, 0}};
  op.infer = infer_numbers;
  return op;
}

// dtype of a kernel's operands; that of a state, which has no kernel, where they differ or cannot be read as they are.
DType common_dtype(const Node& node) {
  const DType a = node.input(0)->type().dtype;
  return a == node.input(1)->type().dtype && plain_operands(node) ? a : DType::kState;
}

template <class Function>
void register_total(OpRegistry& registry, const std::string& name, std::string doc, Function function) {
  OpDef op = binary(name, std::move(doc));
  op.reference = reference_kernel([function](auto& call) { reference_binary(call, function, function); });
  op.make_cpu_kernel = [name, function](const KernelRequest& request) {
    return binary_math_kernel(name, common_dtype(request.node), function);
  };
  registry.add(std::move(op));
}

template <class Function>
void register_division(OpRegistry& registry, const std::string& name, std::string doc, Function function) {
  OpDef op = binary(name, std::move(doc));
  op.reference = reference_kernel([function](auto& call) {
    reference_binary(call, function, [&](int64_t a, int64_t b) {
      require(b != 0, Code::kInvalidArgument, "[", call.node.op_name(), "] ", call.node.name(), ": an integer by 0");
      return function(a, b);
    });
  });
  op.make_cpu_kernel = [name, function](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    const DType dtype = common_dtype(request.node);
    if (dtype == DType::kI32) return division_kernel<int32_t>(name + "_i32", function);
    if (dtype == DType::kI64) return division_kernel<int64_t>(name + "_i64", function);
    return dtype == DType::kF32 ? make_binary_kernel<float, float>(name + "_f32", function) : nullptr;
  };
  registry.add(std::move(op));
}

}  // namespace

void register_op_binary_math(OpRegistry& registry) {
  register_total(registry, "pow",
                 "out = a^b, elementwise with numpy broadcasting. Integers wrap around; to a negative power they are "
                 "1 / a^-b without its fraction, 0 for a = 0.",
                 [](auto a, auto b) { return power(a, b); });
  register_total(registry, "maximum",
                 "out = the larger of a and b, elementwise with numpy broadcasting; NaN if one is.",
                 [](auto a, auto b) { return larger(a, b); });
  register_total(registry, "minimum",
                 "out = the smaller of a and b, elementwise with numpy broadcasting; NaN if one is.",
                 [](auto a, auto b) { return smaller(a, b); });
  register_division(registry, "floor_divide",
                    "out = a / b rounded towards minus infinity, elementwise with numpy broadcasting. An integer "
                    "divided by 0 fails the step.",
                    [](auto a, auto b) { return floor_quotient(a, b); });
  register_division(registry, "remainder",
                    "out = a - floor_divide(a, b) * b, with the sign of b, elementwise with numpy broadcasting. An "
                    "integer divided by 0 fails the step.",
                    [](auto a, auto b) { return floor_remainder(a, b); });
}

}  // namespace atb
