// SPDX-License-Identifier: Apache-2.0
// output_merge: the last step of attention. Outputs of partial results, merged and divided by the sum of their weights.
#include <algorithm>
#include <array>

#include "ir/kernel.h"
#include "ops/attention_partials_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_output_merge(const InferArgs& args) {
  require_float(args, 0);
  require_min_rank(args, 0, 2);
  require_statistics(args, 1, 2);
  require_rank(args, 1, args.inputs[0]->rank() - 1);
  const Shape& shape = args.type(0).shape;
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    require_equal(args, shape[i], args.type(1).shape[i], "extents of output and max");
  }
  return {{args.type(0).dtype, Shape(shape.begin() + 1, shape.end())}};
}

template <class T>
void output_merge_reference(RefCall<T>& call) {
  const RefTensor<T>& output = *call.inputs[0];
  const bool finish = call.node.attrs().flag("finish");
  const int64_t n = output.shape.back();
  const int64_t rows = row_count(call.outputs[0]->shape);
  std::vector<T> factors;
  for (int64_t row = 0; row < rows; ++row) {
    T max, sum;
    merge_statistics(call.inputs[1]->f.data() + row, call.inputs[2]->f.data() + row, output.shape[0], rows, &max, &sum,
                     factors);
    T* out = call.outputs[0]->f.data() + row * n;
    std::fill_n(out, n, T(0));
    for (int64_t p = 0; p < output.shape[0]; ++p) {
      const T factor = factors[static_cast<size_t>(p)];
      if (factor == 0) continue;
      for (int64_t d = 0; d < n; ++d) out[d] += factor * output.f[static_cast<size_t>((p * rows + row) * n + d)];
    }
    if (!finish || sum == 0) continue;
    for (int64_t d = 0; d < n; ++d) out[d] /= sum;
  }
}

// One unit a block of rows.
class OutputMergeKernel final : public Kernel {
 public:
  explicit OutputMergeKernel(bool finish) : finish_(finish) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override {
    return (call.outputs[0].rows() + kFoldRows - 1) / kFoldRows;
  }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(call.inputs[0].size()) * sizeof(float);
  }
  size_t worker_scratch_bytes(const Call& largest) const override {
    return static_cast<size_t>(fold_scratch(largest.inputs[0].dim(-1))) * sizeof(float);
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* worker_scratch) const noexcept override {
    const TensorView& out = call.outputs[0];
    const int64_t last = std::min(end * kFoldRows, out.rows());
    for (int64_t first = begin * kFoldRows; first < last; first += kFoldRows) {
      kernels::AttentionTile tile;
      tile.rows = static_cast<int>(std::min(kFoldRows, out.rows() - first));
      tile.head_dim = out.dim(-1);
      fold_partials(&call.inputs[0], call.inputs[1], call.inputs[2], first, tile,
                    reinterpret_cast<float*>(worker_scratch));
      std::array<float*, static_cast<size_t>(kFoldRows)> rows{};
      for (int64_t i = 0; i < tile.rows; ++i) {
        rows[static_cast<size_t>(i)] = out.as<float>() + leading_offset(out, out.rank - 1, first + i);
      }
      write(tile, rows.data());
    }
  }
  std::string variant(const Call& /*call*/) const override {
    return std::string(finish_ ? "output_merge_f32/finish/" : "output_merge_f32/go_on/") + kernels::attention_target();
  }

 private:
  void write(const kernels::AttentionTile& tile, float* const* rows) const {
    if (finish_) return kernels::attention_finish(tile, rows);
    const int64_t columns = kernels::padded_head_dim(tile.head_dim);
    for (int64_t i = 0; i < tile.rows; ++i) {
      if (tile.sum[i] == 0.0f) {
        std::fill_n(rows[i], tile.head_dim, 0.0f);
      } else {
        std::copy_n(tile.acc + i * columns, tile.head_dim, rows[i]);
      }
    }
  }

  bool finish_;
};

std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) {
  for (const Value* input : request.node.inputs()) {
    if (input->type().dtype != DType::kF32) return nullptr;
  }
  if (!plain_operands(request.node)) return nullptr;
  return std::make_unique<OutputMergeKernel>(request.node.attrs().flag("finish"));
}

}  // namespace

void register_op_output_merge(OpRegistry& registry) {
  OpDef op;
  op.name = "output_merge";
  op.doc =
      "Outputs of P partial results of attention as one: for output [P, ..., D], max and sum [P, ...], the sum over P "
      "of "
      "e^(max_p - max) output_p, divided by sum if it is to finish; max and sum as online_softmax gives them. Folded "
      "from "
      "the left in ascending order; a row that saw no key gives 0. Dao et al. 2022, arXiv:2205.14135.";
  op.inputs = {{"output"}, {"max"}, {"sum"}};
  op.attrs = {{"finish", AttrKind::kBool, true, false, "divide by the sum; false: the result is a partial one again"}};
  op.infer = infer_output_merge;
  op.flops = [](const Node& node) { return Dim(3) * num_elements(node.input(0)->shape()); };
  op.reference = reference_kernel([](auto& call) { output_merge_reference(call); });
  op.make_cpu_kernel = make_kernel;
  registry.add(std::move(op));
}

}  // namespace atb
