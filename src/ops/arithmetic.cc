// SPDX-License-Identifier: Apache-2.0
// add, sub, mul, div: elementwise with numpy broadcasting.
#include "ops/elementwise_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    return a / b;
  }
};

std::vector<Type> infer_arithmetic(const InferArgs& args) {
  for (size_t i = 0; i < 2; ++i) {
    if (args.type(i).dtype == DType::kState) args.fail("no arithmetic on " + args.type(i).str());
  }
  const DType dtype = result_dtype(args);
  if (!is_float(dtype) && args.op.name == "div") args.fail("only floats can be divided; see floor_divide");
  if (dtype == DType::kBool && args.op.name == "sub") args.fail("bools cannot be subtracted; see logical_not");
  return {{dtype, broadcast_shape(args, args.type(0).shape, args.type(1).shape)}};
}

template <class Function>
ReferenceKernel arithmetic_reference(Function function) {
  return reference_kernel([function](auto& call) {
    reference_binary(call, function, [&](int64_t a, int64_t b) {
      if constexpr (std::is_same_v<Function, Div>) {
        return int64_t{0};  // refused by the shape rule
      } else {
        // Unsigned arithmetic wraps where signed would be undefined.
        return static_cast<int64_t>(function(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
      }
    });
  });
}

template <class Function>
std::unique_ptr<Kernel> arithmetic_kernel(const std::string& name, DType dtype, Function function) {
  if (dtype == DType::kF32) return make_binary_kernel<float, float>(name + "_f32", function);
  if constexpr (!std::is_same_v<Function, Div>) {
    if (dtype == DType::kI32) return make_binary_kernel<uint32_t, uint32_t>(name + "_i32", function);
    if (dtype == DType::kI64) return make_binary_kernel<uint64_t, uint64_t>(name + "_i64", function);
    if (dtype == DType::kBool) {
      return make_binary_kernel<uint8_t, uint8_t>(name + "_bool", [function](uint8_t a, uint8_t b) -> uint8_t {
        return function(int{a}, int{b}) != 0 ? 1 : 0;
      });
    }
  }
  return nullptr;
}

template <class Function>
void register_arithmetic(OpRegistry& registry, std::string name, const std::string& doc, Function function) {
  OpDef op;
  op.name = name;
  op.doc = doc;
  op.inputs = {{"a"}, {"b"}};
  op.outputs = {{"out", -1, 0}};
  op.infer = infer_arithmetic;
  op.reference = arithmetic_reference(function);
  op.make_cpu_kernel = [name, function](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    const DType a = request.node.input(0)->type().dtype;
    if (a != request.node.input(1)->type().dtype || !plain_operands(request.node)) return nullptr;
    return arithmetic_kernel(name, a, function);
  };
  registry.add(std::move(op));
}

}  // namespace

void register_op_arithmetic(OpRegistry& registry) {
  register_arithmetic(registry, "add", "out = a + b, elementwise with numpy broadcasting; of two bools: a or b.",
                      Add{});
  register_arithmetic(registry, "sub", "out = a - b, elementwise with numpy broadcasting.", Sub{});
  register_arithmetic(registry, "mul", "out = a * b, elementwise with numpy broadcasting; of two bools: a and b.",
                      Mul{});
  register_arithmetic(registry, "div", "out = a / b, elementwise with numpy broadcasting.", Div{});
}

}  // namespace atb
