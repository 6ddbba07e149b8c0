// SPDX-License-Identifier: Apache-2.0
// CPU kernels that work element by element with numpy broadcasting: one unit is one row (last axis) of the output.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "ir/kernel.h"
#include "kernels/pointwise.h"

namespace atb {

// Byte-free walk over operands: element offset of output row `row` in a view that broadcasts to `out`.
inline int64_t broadcast_row_offset(const TensorView& view, const TensorView& out, int64_t row) noexcept {
  int64_t offset = 0;
  for (int axis = out.rank - 2; axis >= 0; --axis) {
    const int64_t extent = out.shape[static_cast<size_t>(axis)];
    const int64_t index = row % extent;
    row /= extent;
    const int own = axis - (out.rank - view.rank);
    if (own >= 0 && view.shape[static_cast<size_t>(own)] != 1) offset += index * view.stride[static_cast<size_t>(own)];
  }
  return offset;
}

// Stride along the last axis: 0 where the view broadcasts.
inline int64_t broadcast_last_stride(const TensorView& view) noexcept {
  return view.rank == 0 || view.dim(-1) == 1 ? 0 : view.stride[static_cast<size_t>(view.rank - 1)];
}

// `RowLoop` is called as loop(n, out_row, in_rows, in_strides) for each output row of n elements; N operands of type
// In. It may return a bool: false says that the row has no result, and the step fails.
template <size_t N, class In, class Out, class RowLoop>
class ElementwiseKernel final : public Kernel {
 public:
  ElementwiseKernel(std::string variant, std::array<size_t, N> operands, RowLoop loop)
      : variant_(std::move(variant)), operands_(operands), loop_(std::move(loop)) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override { return call.outputs[0].rows(); }

  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(call.outputs[0].size()) * static_cast<double>(N * sizeof(In) + sizeof(Out));
  }

  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const TensorView& out = call.outputs[0];
    const int64_t n = out.rank == 0 ? 1 : out.dim(-1);
    Strides strides;
    for (size_t k = 0; k < N; ++k) strides[k] = broadcast_last_stride(call.inputs[operands_[k]]);
    for (int64_t row = begin; row < end; ++row) {
      Rows rows;
      for (size_t k = 0; k < N; ++k) {
        const TensorView& view = call.inputs[operands_[k]];
        rows[k] = view.as<const In>() + broadcast_row_offset(view, out, row);
      }
      Out* result = out.as<Out>() + broadcast_row_offset(out, out, row);
      if constexpr (std::is_same_v<std::invoke_result_t<RowLoop, int64_t, Out*, Rows, Strides>, bool>) {
        if (!loop_(n, result, rows, strides) && call.fault != nullptr) {
          call.fault->store(true, std::memory_order_relaxed);
        }
      } else {
        loop_(n, result, rows, strides);
      }
    }
  }

  bool takes_any_strides() const override { return true; }
  std::string variant(const Call& /*call*/) const override { return variant_; }

 private:
  using Rows = std::array<const In*, N>;
  using Strides = std::array<int64_t, N>;

  std::string variant_;
  std::array<size_t, N> operands_;
  RowLoop loop_;
};

template <size_t N, class In, class Out, class RowLoop>
std::unique_ptr<Kernel> make_elementwise_kernel(std::string variant, std::array<size_t, N> operands, RowLoop loop) {
  return std::make_unique<ElementwiseKernel<N, In, Out, RowLoop>>(std::move(variant), operands, std::move(loop));
}

// out = function(x).
template <class In, class Out, class Function>
std::unique_ptr<Kernel> make_unary_kernel(std::string variant, Function function) {
  return make_elementwise_kernel<1, In, Out>(
      std::move(variant), {0},
      [function](int64_t n, Out* out, const std::array<const In*, 1>& in, const std::array<int64_t, 1>& stride) {
        const In* x = in[0];
        if (stride[0] == 1) {
          for (int64_t i = 0; i < n; ++i) out[i] = function(x[i]);
        } else {
          for (int64_t i = 0; i < n; ++i) out[i] = function(x[i * stride[0]]);
        }
      });
}

// out = function(x) of f32, in vectors.
inline std::unique_ptr<Kernel> make_pointwise_kernel(const std::string& op, kernels::Pointwise function) {
  return make_elementwise_kernel<1, float, float>(
      op + "_f32/" + kernels::pointwise_target(), {0},
      [function](int64_t n, float* out, const std::array<const float*, 1>& in, const std::array<int64_t, 1>& stride) {
        kernels::apply_pointwise(function, in[0], stride[0], n, out);
      });
}

// out = function(a, b).
template <class In, class Out, class Function>
std::unique_ptr<Kernel> make_binary_kernel(std::string variant, Function function) {
  return make_elementwise_kernel<2, In, Out>(
      std::move(variant), {0, 1},
      [function](int64_t n, Out* out, const std::array<const In*, 2>& in, const std::array<int64_t, 2>& stride) {
        const In* a = in[0];
        const In* b = in[1];
        if (stride[0] == 1 && stride[1] == 1) {
          for (int64_t i = 0; i < n; ++i) out[i] = function(a[i], b[i]);
        } else if (stride[0] == 1 && stride[1] == 0) {
          const In scalar = *b;
          for (int64_t i = 0; i < n; ++i) out[i] = function(a[i], scalar);
        } else {
          for (int64_t i = 0; i < n; ++i) out[i] = function(a[i * stride[0]], b[i * stride[1]]);
        }
      });
}

}  // namespace atb
