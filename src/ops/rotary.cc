// SPDX-License-Identifier: Apache-2.0
// rotary: rotary position embedding of one tensor.
#include <algorithm>

#include "ops/attention_util.h"
#include "ops/rotary_kernel.h"

namespace atb {
namespace {

std::vector<Type> infer_rotary(const InferArgs& args) {
  require_rotary_tables(args, 0, 1);
  return {args.type(0)};
}

template <class T>
void rotary_reference(RefCall<T>& call) {
  const RefTensor<T>& x = *call.inputs[0];
  const RefTensor<T>& cos = *call.inputs[1];
  const RefTensor<T>& sin = *call.inputs[2];
  const bool interleaved = call.node.attrs().flag("interleaved");
  const int64_t head_dim = x.shape.back();
  const int64_t heads = x.shape[x.shape.size() - 2];
  const int64_t half = cos.shape.back();
  if (x.f.empty()) return;
  const int64_t table_rows = cos.size() / std::max<int64_t>(half, 1);
  std::vector<T>& out = call.outputs[0]->f;
  out = x.f;  // the features beyond 2 * half stay as they are
  for (int64_t row = 0; row < x.size() / head_dim; ++row) {
    const int64_t table = table_rows == 0 ? 0 : row / heads % table_rows * half;
    for (int64_t i = 0; i < half; ++i) {
      const size_t first = static_cast<size_t>(row * head_dim + (interleaved ? 2 * i : i));
      const size_t second = static_cast<size_t>(row * head_dim + (interleaved ? 2 * i + 1 : i + half));
      const T c = cos.f[static_cast<size_t>(table + i)];
      const T s = sin.f[static_cast<size_t>(table + i)];
      out[first] = x.f[first] * c - x.f[second] * s;
      out[second] = x.f[second] * c + x.f[first] * s;
    }
  }
}

}  // namespace

void register_op_rotary(OpRegistry& registry) {
  OpDef op;
  op.name = "rotary";
  op.doc =
      "Rotary position embedding of x [..., T, H, D] by cos, sin [..., T, R/2]: the first R features of a head rotate "
      "in "
      "pairs (a, b) -> (a cos - b sin, b cos + a sin), the other D - R are copied bit for bit. Pairs are (i, i + R/2), "
      "or "
      "(2i, 2i + 1) when interleaved. Su et al. 2021, arXiv:2104.09864.";
  op.inputs = {{"x"}, {"cos"}, {"sin"}};
  op.outputs = {{"out", -1, 0}};
  op.attrs = {{"interleaved", AttrKind::kBool, false, false, "pairs are neighbours (2i, 2i + 1)"}};
  op.infer = infer_rotary;
  op.flops = [](const Node& node) { return Dim(3) * num_elements(node.output()->shape()); };
  op.reference = reference_kernel([](auto& call) { rotary_reference(call); });
  op.make_cpu_kernel = [](const KernelRequest& request) { return make_rotary_kernel(request, 1); };
  registry.add(std::move(op));
}

}  // namespace atb
