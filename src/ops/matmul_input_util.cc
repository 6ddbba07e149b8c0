// SPDX-License-Identifier: Apache-2.0
// Preparing the rows of a product's input.
#include "ops/matmul_input_util.h"

#include <algorithm>
#include <array>

#include "ops/row_runs_util.h"

namespace atb {
namespace {

// Up to so many terms are prepared by each worker for itself.
constexpr int64_t kOwnTerms = 16384;

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
size_t float_bytes(int64_t count) { return aligned(static_cast<size_t>(count) * sizeof(float)); }

}  // namespace

MatmulInput::MatmulInput(const KernelRequest& request, const std::optional<NormOperands>& norm, bool int8, int64_t k)
    : int8_(int8),
      k_(k),
      own_rows_(std::min<int64_t>(kMaxFewRows, kOwnTerms / std::max<int64_t>(k, 1))),
      unit_rows_(norm ? 2 : 8),
      norm_(norm.has_value()) {
  if (!norm) return;
  weight_ = make_norm_vector(request, norm->weight);
  bias_ = make_norm_vector(request, norm->bias);
  parameters_ = {weight_.constant.get(), bias_.constant.get(), static_cast<float>(request.node.attrs().real("eps")), k,
                 norm->layer};
}

int64_t MatmulInput::units(int64_t rows) const noexcept {
  return prepares_alone(rows) ? 0 : (rows + unit_rows_ - 1) / unit_rows_;
}

double MatmulInput::cost(int64_t rows) const noexcept {
  return static_cast<double>(rows * k_) * ((norm_ ? 8 : 0) + (int8_ ? 5 : 0));
}

size_t MatmulInput::bytes(int64_t rows) const noexcept {
  if (int8_) return QuantizedRows::bytes(rows, k_);
  return norm_ ? float_bytes(rows * k_) : 0;
}

size_t MatmulInput::shared_bytes(int64_t rows) const noexcept { return bytes(rows); }

size_t MatmulInput::worker_bytes() const noexcept { return bytes(own_rows_) + (int8_ && norm_ ? float_bytes(k_) : 0); }

MatmulRows MatmulInput::bind(std::byte* memory, int64_t rows) const noexcept {
  MatmulRows result;
  if (int8_) {
    result.quantized = QuantizedRows::bind(memory, rows, k_);
  } else {
    result.x = TensorView::dense(memory, DType::kF32, std::array<int64_t, 2>{rows, k_});
  }
  return result;
}

// `normed`: memory of a row, where its norm is only on the way.
void MatmulInput::prepare_row(const float* x, const MatmulRows& to, int64_t row, float* normed) const noexcept {
  if (norm_) {
    float* out = int8_ ? normed : to.x.as<float>() + row * k_;
    kernels::norm_row(parameters_, x, out);
    x = out;
  }
  if (int8_) quantize_row(x, to.quantized, row);
}

void MatmulInput::prepare(const Call& call, int64_t begin, int64_t end, std::byte* scratch) const noexcept {
  const RowRuns x(call.inputs[0]);
  const MatmulRows to = shared_rows(call);
  const int64_t last = std::min(end * unit_rows_, call.inputs[0].rows());
  for (int64_t row = begin * unit_rows_; row < last; ++row) {
    prepare_row(x.row(row), to, row, reinterpret_cast<float*>(scratch));
  }
}

MatmulRows MatmulInput::rows(const Call& call, std::byte* scratch) const noexcept {
  const int64_t rows = call.inputs[0].rows();
  if (!has_phase() || !prepares_alone(rows)) return shared_rows(call);
  const RowRuns x(call.inputs[0]);
  const MatmulRows to = bind(scratch, rows);
  auto* normed = reinterpret_cast<float*>(scratch + bytes(own_rows_));
  for (int64_t row = 0; row < rows; ++row) prepare_row(x.row(row), to, row, normed);
  return to;
}

MatmulRows MatmulInput::shared_rows(const Call& call) const noexcept {
  if (has_phase()) return bind(call.scratch, call.inputs[0].rows());
  return {call.inputs[0], {}};
}

}  // namespace atb
