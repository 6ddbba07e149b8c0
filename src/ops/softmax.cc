// SPDX-License-Identifier: Apache-2.0
// softmax over the last axis.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/kernel.h"
#include "kernels/pointwise.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_softmax(const InferArgs& args) {
  require_float(args, 0);
  require_min_rank(args, 0, 1);
  const int64_t axis = args.attrs.integer("axis");
  if (axis != -1 && axis != args.inputs[0]->rank() - 1) {
    args.fail("axis " + std::to_string(axis) + ": only the last one is supported; transpose first");
  }
  return {{args.type(0).dtype, args.type(0).shape}};
}

template <class T>
void softmax_reference(const T* x, int64_t n, T* out) {
  T largest = -std::numeric_limits<T>::infinity();
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, x[i]);
  if (largest == -std::numeric_limits<T>::infinity()) {  // everything is masked
    const bool nan = std::any_of(x, x + n, [](T value) { return std::isnan(value); });
    std::fill(out, out + n, nan ? std::numeric_limits<T>::quiet_NaN() : T(0));
    return;
  }
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += out[i] = std::exp(x[i] - largest);
  for (int64_t i = 0; i < n; ++i) out[i] /= sum;
}

// One unit a row.
class SoftmaxKernel final : public Kernel {
 public:
  int64_t units(const Call& call, int /*phase*/) const noexcept override { return call.outputs[0].rows(); }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(call.outputs[0].size()) * 50;
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const TensorView& x = call.inputs[0];
    const TensorView& out = call.outputs[0];
    for (int64_t row = begin; row < end; ++row) {
      kernels::softmax_row(x.as<const float>() + leading_offset(x, x.rank - 1, row), x.dim(-1),
                           out.as<float>() + leading_offset(out, out.rank - 1, row));
    }
  }
  std::string variant(const Call& /*call*/) const override {
    return std::string("softmax_f32/") + kernels::pointwise_target();
  }
};

}  // namespace

void register_op_softmax(OpRegistry& registry) {
  OpDef op;
  op.name = "softmax";
  op.doc = "out = exp(x - max) / sum of that, over the last axis; a row of nothing but -inf gives zeros.";
  op.inputs = {{"x"}};
  op.outputs = {{"out", -1, 0}};
  op.attrs = {{"axis", AttrKind::kInt, int64_t{-1}, false, "the last axis"}};
  op.infer = infer_softmax;
  op.flops = [](const Node& node) { return Dim(5) * num_elements(node.output()->shape()); };
  op.reference = reference_kernel([](auto& call) {
    const auto& x = *call.inputs[0];
    const int64_t n = last_extent(x.shape);
    for (int64_t row = 0; row < row_count(x.shape); ++row) {
      softmax_reference(x.f.data() + row * n, n, call.outputs[0]->f.data() + row * n);
    }
  });
  op.make_cpu_kernel = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    const bool f32 = request.node.input(0)->type().dtype == DType::kF32;
    return f32 && plain_operands(request.node) ? std::make_unique<SoftmaxKernel>() : nullptr;
  };
  registry.add(std::move(op));
}

}  // namespace atb
