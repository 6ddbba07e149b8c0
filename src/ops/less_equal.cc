// SPDX-License-Identifier: Apache-2.0
// less_equal: elementwise comparison.
#include "ops/elementwise_util.h"
#include "ops/infer_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_less_equal(const InferArgs& args) {
  const DType a = args.type(0).dtype;
  const DType b = args.type(1).dtype;
  if (a == DType::kState || b == DType::kState) args.fail("a state cannot be compared");
  if (is_float(a) != is_float(b))
    args.fail("a " + args.type(0).str() + " and b " + args.type(1).str() + " differ in kind");
  return {{DType::kBool, broadcast_shape(args, args.type(0).shape, args.type(1).shape)}};
}

template <class Element>
std::unique_ptr<Kernel> less_equal_kernel(std::string variant) {
  return make_elementwise_kernel<2, Element, uint8_t>(
      std::move(variant), {0, 1},
      [](int64_t n, uint8_t* out, const std::array<const Element*, 2>& in, const std::array<int64_t, 2>& stride) {
        for (int64_t i = 0; i < n; ++i) out[i] = in[0][i * stride[0]] <= in[1][i * stride[1]] ? 1 : 0;
      });
}

}  // namespace

void register_op_less_equal(OpRegistry& registry) {
  OpDef op;
  op.name = "less_equal";
  op.doc = "out = a <= b as bool, elementwise with numpy broadcasting; both floats or both integers. NaN gives false.";
  op.inputs = {{"a"}, {"b"}};
  op.infer = infer_less_equal;
  op.reference = reference_kernel([](auto& call) {
    const auto& a = *call.inputs[0];
    const auto& b = *call.inputs[1];
    auto& out = *call.outputs[0];
    for_each_broadcast<2>(out.shape, {a.shape, b.shape}, [&](size_t o, const std::array<int64_t, 2>& at) {
      const auto i = static_cast<size_t>(at[0]);
      const auto j = static_cast<size_t>(at[1]);
      out.i[o] = is_float(a.dtype) ? a.f[i] <= b.f[j] : a.i[i] <= b.i[j];
    });
  });
  op.make_cpu_kernel = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    const DType a = request.node.input(0)->type().dtype;
    if (a != request.node.input(1)->type().dtype) return nullptr;
    if (a == DType::kF32) return less_equal_kernel<float>("less_equal_f32");
    if (a == DType::kI32) return less_equal_kernel<int32_t>("less_equal_i32");
    return nullptr;
  };
  registry.add(std::move(op));
}

}  // namespace atb
