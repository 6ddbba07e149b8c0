// SPDX-License-Identifier: Apache-2.0
// matmul: batched matrix product of two activations, with broadcast leading dims.
#include "ops/infer_util.h"
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
  registry.add(std::move(op));
}

}  // namespace atb
