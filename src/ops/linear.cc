// SPDX-License-Identifier: Apache-2.0
// linear: product with a weight stored one row an output feature.
#include "ops/linear_util.h"
#include "ops/matmul_kernel.h"

namespace atb {
namespace {

std::vector<Type> infer_linear(const InferArgs& args) {
  Type out = args.type(0);
  out.shape.back() = require_linear_inputs(args);
  return {out};
}

template <class T>
void linear_reference(RefCall<T>& call) {
  const RefTensor<T>& x = *call.inputs[0];
  const RefTensor<T>& w = *call.inputs[1];
  const RefTensor<T>* bias = call.inputs.size() > 2 ? call.inputs[2] : nullptr;
  const int64_t k = w.shape[1];
  const int64_t n = w.shape[0];
  T* out = call.outputs[0]->f.data();
  const int64_t rows = n == 0 ? 0 : call.outputs[0]->size() / n;
  for (int64_t row = 0; row < rows; ++row) {
    linear_row(x.f.data() + row * k, w.f.data(), bias == nullptr ? nullptr : bias->f.data(), k, 0, n, out + row * n);
  }
}

}  // namespace

void register_op_linear(OpRegistry& registry) {
  OpDef op;
  op.name = "linear";
  op.doc = "out[..., n] = sum over k of x[..., k] * w[n, k] + bias[n].";
  op.inputs = {{"x"}, {"w"}, {"bias", true}};
  op.infer = infer_linear;
  op.flops = linear_flops;
  op.reference = reference_kernel([](auto& call) { linear_reference(call); });
  op.make_cpu_kernel = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    const Dim& features = request.node.output()->shape().back();
    if (!features.is_constant()) return nullptr;
    return make_matmul_kernel(request, {.splits = {features.constant()}, .norm = {}});
  };
  registry.add(std::move(op));
}

}  // namespace atb
