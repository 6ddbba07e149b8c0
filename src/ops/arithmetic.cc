// SPDX-License-Identifier: Apache-2.0
// add, sub, mul, div: elementwise with numpy broadcasting.
#include <cstdlib>

#include "ops/elementwise_util.h"
#include "ops/infer_util.h"
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
    const DType dtype = args.type(i).dtype;
    if (dtype == DType::kState || dtype == DType::kBool) args.fail("no arithmetic on " + args.type(i).str());
  }
  const DType dtype = result_dtype(args);
  if (!is_float(dtype) && args.op.name == "div") args.fail("only floats can be divided");
  return {{dtype, broadcast_shape(args, args.type(0).shape, args.type(1).shape)}};
}

template <class Function>
ReferenceKernel arithmetic_reference(Function function) {
  return reference_kernel([function](auto& call) {
    const auto& a = *call.inputs[0];
    const auto& b = *call.inputs[1];
    auto& out = *call.outputs[0];
    for_each_broadcast<2>(out.shape, {a.shape, b.shape}, [&](size_t o, const std::array<int64_t, 2>& at) {
      if (is_float(out.dtype)) {
        out.f[o] = function(ref_at(a, at[0]), ref_at(b, at[1]));
      } else if constexpr (!std::is_same_v<Function, Div>) {
        // Unsigned arithmetic wraps where signed would be undefined.
        out.i[o] = static_cast<int64_t>(function(static_cast<uint64_t>(a.i[static_cast<size_t>(at[0])]),
                                                 static_cast<uint64_t>(b.i[static_cast<size_t>(at[1])])));
      }
    });
  });
}

template <class Element, class Function>
std::unique_ptr<Kernel> arithmetic_kernel(std::string variant, Function function) {
  const auto loop = [function](int64_t n, Element* out, const std::array<const Element*, 2>& in,
                               const std::array<int64_t, 2>& stride) {
    const Element* a = in[0];
    const Element* b = in[1];
    if (stride[0] == 1 && stride[1] == 1) {
      for (int64_t i = 0; i < n; ++i) out[i] = function(a[i], b[i]);
    } else if (stride[0] == 1 && stride[1] == 0) {
      const Element scalar = *b;
      for (int64_t i = 0; i < n; ++i) out[i] = function(a[i], scalar);
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = function(a[i * stride[0]], b[i * stride[1]]);
    }
  };
  return make_elementwise_kernel<2, Element, Element>(std::move(variant), {0, 1}, loop);
}

template <class Function>
void register_arithmetic(OpRegistry& registry, std::string name, const char* symbol, Function function) {
  OpDef op;
  op.name = name;
  op.doc = std::string("out = a ") + symbol + " b, elementwise with numpy broadcasting.";
  op.inputs = {{"a"}, {"b"}};
  op.outputs = {{"out", -1, 0}};
  op.infer = infer_arithmetic;
  op.reference = arithmetic_reference(function);
  op.make_cpu_kernel = [name, function](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    const DType a = request.node.input(0)->type().dtype;
    if (a != request.node.input(1)->type().dtype) return nullptr;
    if (a == DType::kF32) return arithmetic_kernel<float>(name + "_f32", function);
    if constexpr (!std::is_same_v<Function, Div>) {
      if (a == DType::kI32) return arithmetic_kernel<uint32_t>(name + "_i32", function);
    }
    return nullptr;
  };
  registry.add(std::move(op));
}

}  // namespace

void register_op_arithmetic(OpRegistry& registry) {
  register_arithmetic(registry, "add", "+", Add{});
  register_arithmetic(registry, "sub", "-", Sub{});
  register_arithmetic(registry, "mul", "*", Mul{});
  register_arithmetic(registry, "div", "/", Div{});
}

}  // namespace atb
