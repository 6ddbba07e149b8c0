// SPDX-License-Identifier: Apache-2.0
// matmul: batched matrix product of two activations, with broadcast leading dims.
#include <algorithm>
#include <array>

#include "ir/kernel.h"
#include "ops/elementwise_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_matmul(const InferArgs& args) {
  require_float(args, 0);
  require_float(args, 1);
  require_min_rank(args, 0, 2);
  require_min_rank(args, 1, 2);
  const Shape& a = args.type(0).shape;
  const Shape& b = args.type(1).shape;
  const bool transpose_b = args.attrs.flag("transpose_b");
  const Dim& inner_b = b[b.size() - (transpose_b ? 1 : 2)];
  require_equal(args, a.back(), inner_b, "K of a and b");
  Shape shape = broadcast_shape(args, leading(a, 2), leading(b, 2));
  shape.push_back(a[a.size() - 2]);
  shape.push_back(b[b.size() - (transpose_b ? 2 : 1)]);
  return {{args.type(0).dtype, std::move(shape)}};
}

template <class T>
void matmul_reference(RefCall<T>& call) {
  const RefTensor<T>& a = *call.inputs[0];
  const RefTensor<T>& b = *call.inputs[1];
  RefTensor<T>& out = *call.outputs[0];
  const bool transpose_b = call.node.attrs().flag("transpose_b");
  const int64_t m = out.shape[out.shape.size() - 2];
  const int64_t n = out.shape.back();
  const int64_t k = a.shape.back();
  const auto batch = [](const std::vector<int64_t>& shape) {
    return std::vector<int64_t>(shape.begin(), shape.end() - 2);
  };
  for_each_broadcast<2>(batch(out.shape), {batch(a.shape), batch(b.shape)},
                        [&](size_t o, const std::array<int64_t, 2>& at) {
                          const T* lhs = a.f.data() + at[0] * m * k;
                          const T* rhs = b.f.data() + at[1] * n * k;
                          T* result = out.f.data() + static_cast<int64_t>(o) * m * n;
                          for (int64_t i = 0; i < m; ++i) {
                            for (int64_t j = 0; j < n; ++j) {
                              T sum = 0;
                              for (int64_t l = 0; l < k; ++l) {
                                sum += lhs[i * k + l] * rhs[transpose_b ? j * k + l : l * n + j];
                              }
                              result[i * n + j] = sum;
                            }
                          }
                        });
}

// Plain loops for graphs whose attention no pattern knows. One unit a row of the result; each element adds along k in
// an order that k alone decides.
class MatmulKernel final : public Kernel {
 public:
  explicit MatmulKernel(bool transpose_b) : transpose_b_(transpose_b) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override { return call.outputs[0].rows(); }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(call.outputs[0].size()) * static_cast<double>(call.inputs[0].dim(-1));
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const TensorView& a = call.inputs[0];
    const TensorView& b = call.inputs[1];
    const TensorView& out = call.outputs[0];
    const int64_t n = out.dim(-1);
    const int64_t k = a.dim(-1);
    const int64_t pitch = b.stride[static_cast<size_t>(b.rank - 2)];
    for (int64_t row = begin; row < end; ++row) {
      const float* lhs = a.as<const float>() + broadcast_row_offset(a, out, row);
      const float* rhs = b.as<const float>() + matrix_offset(b, out, row);
      float* result = out.as<float>() + leading_offset(out, out.rank - 1, row);
      if (transpose_b_) {
        for (int64_t j = 0; j < n; ++j) result[j] = dot(lhs, rhs + j * pitch, k);
      } else {
        std::fill_n(result, n, 0.0f);
        for (int64_t l = 0; l < k; ++l) add_scaled(lhs[l], rhs + l * pitch, n, result);
      }
    }
  }
  std::string variant(const Call& /*call*/) const override { return "matmul_f32"; }

 private:
  static constexpr size_t kLanes = 16;

  // Where the matrix of b for the batch of this row begins.
  static int64_t matrix_offset(TensorView b, const TensorView& out, int64_t row) {
    b.stride[static_cast<size_t>(b.rank - 2)] = 0;
    return broadcast_row_offset(b, out, row);
  }

  static void add_scaled(float factor, const float* x, int64_t n, float* to) {
    for (int64_t j = 0; j < n; ++j) to[j] += factor * x[j];
  }

  static float dot(const float* a, const float* b, int64_t n) {
    std::array<float, kLanes> sums{};
    int64_t i = 0;
    for (; i + static_cast<int64_t>(kLanes) <= n; i += static_cast<int64_t>(kLanes)) {
      for (size_t lane = 0; lane < kLanes; ++lane)
        sums[lane] += a[i + static_cast<int64_t>(lane)] * b[i + static_cast<int64_t>(lane)];
    }
    for (size_t lane = 0; i < n; ++i, ++lane) sums[lane] += a[i] * b[i];
    float sum = 0;
    for (const float part : sums) sum += part;
    return sum;
  }

  bool transpose_b_;
};

}  // namespace

void register_op_matmul(OpRegistry& registry) {
  OpDef op;
  op.name = "matmul";
  op.doc =
      "out[..., m, n] = sum over k of a[..., m, k] * b[..., k, n] (b[..., n, k] with transpose_b); leading dims "
      "broadcast.";
  op.inputs = {{"a"}, {"b"}};
  op.attrs = {{"transpose_b", AttrKind::kBool, false, false, "b is [..., N, K]"}};
  op.infer = infer_matmul;
  op.flops = [](const Node& node) { return Dim(2) * num_elements(node.output()->shape()) * node.input(0)->dim(-1); };
  op.reference = reference_kernel([](auto& call) { matmul_reference(call); });
  op.make_cpu_kernel = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    const bool f32 = request.node.input(0)->type().dtype == DType::kF32 &&
                     request.node.input(1)->type().dtype == DType::kF32 && plain_operands(request.node);
    return f32 ? std::make_unique<MatmulKernel>(request.node.attrs().flag("transpose_b")) : nullptr;
  };
  registry.add(std::move(op));
}

}  // namespace atb
