// SPDX-License-Identifier: Apache-2.0
// The CPU kernel of the norms: one unit a row, every row summed in one order.
#include "ops/norm_util.h"

#include <string>
#include <utility>

#include "kernels/norm.h"

namespace atb {
namespace {

// Row `row` of a view whose last axis is dense.
float* row_of(const TensorView& view, int64_t row) noexcept {
  int64_t offset = 0;
  for (int axis = view.rank - 2; axis >= 0; --axis) {
    const auto i = static_cast<size_t>(axis);
    offset += row % view.shape[i] * view.stride[i];
    row /= view.shape[i];
  }
  return view.as<float>() + offset;
}

class NormKernel final : public Kernel {
 public:
  NormKernel(const KernelRequest& request, const NormOperands& operands)
      : operands_(operands),
        weight_(make_norm_vector(request, operands.weight)),
        bias_(make_norm_vector(request, operands.bias)),
        eps_(static_cast<float>(request.node.attrs().real("eps"))) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override { return x(call).rows(); }

  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(x(call).size()) * (operands_.residual >= 0 ? 16 : 8);
  }

  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const int64_t n = x(call).dim(-1);
    const kernels::NormParameters parameters{weight_.data(call), bias_.data(call), eps_, n, operands_.layer};
    for (int64_t row = begin; row < end; ++row) {
      const float* in = row_of(x(call), row);
      if (operands_.residual >= 0) {
        float* sum = row_of(call.outputs[1], row);
        kernels::add_rows(row_of(call.inputs[static_cast<size_t>(operands_.residual)], row), in, n, sum);
        in = sum;
      }
      kernels::norm_row(parameters, in, row_of(call.outputs[0], row));
    }
  }

  std::string variant(const Call& /*call*/) const override {
    std::string name = operands_.residual >= 0 ? "add_" : "";
    name += operands_.layer ? "layer_norm_f32/" : "rms_norm_f32/";
    return name + kernels::norm_target();
  }

 private:
  const TensorView& x(const Call& call) const noexcept { return call.inputs[static_cast<size_t>(operands_.x)]; }

  NormOperands operands_;
  NormVector weight_;
  NormVector bias_;
  float eps_;
};

}  // namespace

NormVector make_norm_vector(const KernelRequest& request, int input) {
  const Value* value = input < 0 ? nullptr : request.node.input(static_cast<size_t>(input));
  if (value == nullptr) return {};
  if (value->is_constant()) return {request.store.f32(value->constant()), -1};
  return {nullptr, input};
}

void require_norm_inputs(const InferArgs& args, size_t x, size_t weight, size_t bias) {
  require_float(args, x);
  require_min_rank(args, x, 1);
  const Dim& width = args.type(x).shape.back();
  if (args.has(weight)) require_vector(args, weight, width, "the weight and the last extent of x");
  if (args.has(bias)) require_vector(args, bias, width, "the bias and the last extent of x");
}

std::unique_ptr<Kernel> make_norm_kernel(const KernelRequest& request, const NormOperands& operands) {
  const Node& node = request.node;
  for (const Value* input : node.inputs()) {
    const bool converted = input != nullptr && input->is_constant();
    if (input != nullptr && !converted && input->type().dtype != DType::kF32) return nullptr;
  }
  if (node.output()->type().dtype != DType::kF32) return nullptr;
  return std::make_unique<NormKernel>(request, operands);
}

}  // namespace atb
