// SPDX-License-Identifier: Apache-2.0
#include "runtime/dense_kernel.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/memory.h"
#include "ir/op.h"
#include "passes/schedule.h"

namespace atb {
namespace {

constexpr size_t kMaxOperands = 16;

bool has_strided_rows(const TensorView& view) {
  return view.rank > 0 && view.dim(-1) > 1 && view.stride[static_cast<size_t>(view.rank - 1)] != 1;
}

size_t dense_bytes(const TensorView& view) {
  return align_up(static_cast<size_t>(view.size()) * dtype_size(view.dtype), kMemoryAlignment);
}

TensorView dense_view(const TensorView& view, std::byte* data) {
  return TensorView::dense(data, view.dtype, {view.shape.data(), static_cast<size_t>(view.rank)});
}

// True if `value` may reach a kernel with a last axis whose stride is not 1.
bool may_have_strided_rows(const Value& value, bool strided_inputs) {
  const Node* producer = value.producer();
  if (producer == nullptr) return strided_inputs && !value.is_constant();
  if (!aliases_input(*producer) || producer->is("reshape")) return false;
  const auto& perm = producer->attrs().get<std::vector<int64_t>>("perm");
  const bool moved = !perm.empty() && perm.back() + 1 != static_cast<int64_t>(perm.size());
  return moved || may_have_strided_rows(*producer->input(0), strided_inputs);
}

// Phase 0 copies, one unit a row; phase p is phase p - 1 of the inner kernel. The copies lie before its scratch.
class DenseOperandsKernel final : public Kernel {
 public:
  DenseOperandsKernel(std::unique_ptr<Kernel> inner, std::vector<size_t> operands)
      : inner_(std::move(inner)), operands_(std::move(operands)) {}

  int phases() const override { return 1 + inner_->phases(); }

  int64_t units(const Call& call, int phase) const noexcept override {
    if (phase > 0) return inner_->units(Dense(*this, call).call, phase - 1);
    int64_t rows = 0;
    for (const size_t i : operands_) rows += rows_to_copy(call.inputs[i]);
    return rows;
  }

  double cost(const Call& call, int phase) const noexcept override {
    if (phase > 0) return inner_->cost(Dense(*this, call).call, phase - 1);
    return 2.0 * static_cast<double>(copied_bytes(call));
  }

  size_t scratch_bytes(const Call& call) const override {
    return copied_bytes(call) + inner_->scratch_bytes(Dense(*this, call).call);
  }
  size_t worker_scratch_bytes(const Call& call) const override {
    return inner_->worker_scratch_bytes(Dense(*this, call).call);
  }
  bool wants_whole_range(const Call& call, int phase) const noexcept override {
    return phase > 0 && inner_->wants_whole_range(Dense(*this, call).call, phase - 1);
  }

  void run(const Call& call, int phase, int64_t begin, int64_t end, std::byte* worker_scratch) const noexcept override {
    if (phase > 0) return inner_->run(Dense(*this, call).call, phase - 1, begin, end, worker_scratch);
    int64_t first = 0;  // unit of the operand's first row
    std::byte* copy = call.scratch;
    for (const size_t i : operands_) {
      const TensorView& view = call.inputs[i];
      const int64_t rows = rows_to_copy(view);
      if (rows == 0) continue;
      const size_t row_bytes = static_cast<size_t>(view.dim(-1)) * dtype_size(view.dtype);
      for (int64_t unit = std::max(begin, first); unit < std::min(end, first + rows); ++unit) {
        copy_row(view, unit - first, copy + static_cast<size_t>(unit - first) * row_bytes);
      }
      first += rows;
      copy += dense_bytes(view);
    }
  }

  std::string variant(const Call& call) const override { return inner_->variant(Dense(*this, call).call); }

 private:
  // The call that the inner kernel sees.
  struct Dense {
    Dense(const DenseOperandsKernel& kernel, const Call& original) : call(original) {
      std::copy(original.inputs.begin(), original.inputs.end(), inputs.begin());
      for (const size_t i : kernel.operands_) {
        if (rows_to_copy(original.inputs[i]) == 0) continue;
        inputs[i] = dense_view(original.inputs[i], call.scratch);
        if (call.scratch != nullptr) call.scratch += dense_bytes(inputs[i]);
      }
      call.inputs = {inputs.data(), original.inputs.size()};
    }
    Dense(const Dense&) = delete;
    Dense& operator=(const Dense&) = delete;

    std::array<TensorView, kMaxOperands> inputs;
    Call call;
  };

  static int64_t rows_to_copy(const TensorView& view) { return has_strided_rows(view) ? view.rows() : 0; }

  size_t copied_bytes(const Call& call) const noexcept {
    size_t bytes = 0;
    for (const size_t i : operands_) bytes += rows_to_copy(call.inputs[i]) > 0 ? dense_bytes(call.inputs[i]) : 0;
    return bytes;
  }

  std::unique_ptr<Kernel> inner_;
  std::vector<size_t> operands_;
};

}  // namespace

std::unique_ptr<Kernel> with_dense_rows(std::unique_ptr<Kernel> kernel, const Node& node, bool strided_inputs) {
  if (kernel->takes_any_strides()) return kernel;
  std::vector<size_t> operands;
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    const Value* input = node.input(i);
    if (input != nullptr && may_have_strided_rows(*input, strided_inputs)) operands.push_back(i);
  }
  if (operands.empty()) return kernel;
  require(node.inputs().size() <= kMaxOperands, Code::kUnsupported, "[", node.op_name(), "] ", node.name(), ": ",
          node.inputs().size(), " operands, strided ones may be among at most ", kMaxOperands);
  return std::make_unique<DenseOperandsKernel>(std::move(kernel), std::move(operands));
}

}  // namespace atb
