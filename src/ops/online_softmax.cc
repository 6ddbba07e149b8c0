// SPDX-License-Identifier: Apache-2.0
// online_softmax: the third step of attention. Maxima and sums of partial results, merged.
#include <algorithm>

#include "ir/kernel.h"
#include "ops/attention_partials_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_online_softmax(const InferArgs& args) {
  require_statistics(args, 0, 1);
  const Shape& shape = args.type(0).shape;
  const Type merged{args.type(0).dtype, Shape(shape.begin() + 1, shape.end())};
  return {merged, merged};
}

template <class T>
void online_softmax_reference(RefCall<T>& call) {
  const RefTensor<T>& max = *call.inputs[0];
  const int64_t rows = call.outputs[0]->size();
  std::vector<T> factors;
  for (int64_t row = 0; row < rows; ++row) {
    merge_statistics(max.f.data() + row, call.inputs[1]->f.data() + row, max.shape[0], rows,
                     call.outputs[0]->f.data() + row, call.outputs[1]->f.data() + row, factors);
  }
}

// One unit a block of rows.
class OnlineSoftmaxKernel final : public Kernel {
 public:
  int64_t units(const Call& call, int /*phase*/) const noexcept override {
    return (call.outputs[0].size() + kFoldRows - 1) / kFoldRows;
  }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(call.inputs[0].size()) * 16;
  }
  size_t worker_scratch_bytes(const Call& /*largest*/) const override {
    return static_cast<size_t>(fold_scratch(0)) * sizeof(float);
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* worker_scratch) const noexcept override {
    const TensorView &max = call.outputs[0], &sum = call.outputs[1];
    for (int64_t first = begin * kFoldRows; first < std::min(end * kFoldRows, max.size()); first += kFoldRows) {
      kernels::AttentionTile tile;
      tile.rows = static_cast<int>(std::min(kFoldRows, max.size() - first));
      fold_partials(nullptr, call.inputs[0], call.inputs[1], first, tile, reinterpret_cast<float*>(worker_scratch));
      for (int64_t i = 0; i < tile.rows; ++i) {
        max.as<float>()[leading_offset(max, max.rank, first + i)] = tile.max[i];
        sum.as<float>()[leading_offset(sum, sum.rank, first + i)] = tile.sum[i];
      }
    }
  }
  std::string variant(const Call& /*call*/) const override {
    return std::string("online_softmax_f32/") + kernels::attention_target();
  }
};

std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) {
  for (const Value* input : request.node.inputs()) {
    if (input->type().dtype != DType::kF32) return nullptr;
  }
  if (!plain_operands(request.node)) return nullptr;
  return std::make_unique<OnlineSoftmaxKernel>();
}

}  // namespace

void register_op_online_softmax(OpRegistry& registry) {
  OpDef op;
  op.name = "online_softmax";
  op.doc =
      "Running maximum and sum of softmax over partial results of attention: for max and sum [P, ...] of P ranges of "
      "keys, max = max over P of max_p and sum = sum over P of e^(max_p - max) sum_p, folded from the left in "
      "ascending "
      "order. Partials with a sum of 0 saw no key and change nothing. Milakov and Gimelshein 2018, arXiv:1805.02867.";
  op.inputs = {{"max"}, {"sum"}};
  op.outputs = {{"max"}, {"sum"}};
  op.infer = infer_online_softmax;
  op.flops = [](const Node& node) { return Dim(4) * num_elements(node.input(0)->shape()); };
  op.reference = reference_kernel([](auto& call) { online_softmax_reference(call); });
  op.make_cpu_kernel = make_kernel;
  registry.add(std::move(op));
}

}  // namespace atb
