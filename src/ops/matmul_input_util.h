// SPDX-License-Identifier: Apache-2.0
// What happens to the rows of a product's input before it: a norm, quantization to int8, both, or nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ir/kernel.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "ops/norm_util.h"

namespace atb {

// The rows that a product reads.
struct MatmulRows {
  TensorView x;             // exact: f32 rows
  QuantizedRows quantized;  // int8
};

// Few rows are prepared by each worker for itself, which is cheaper than meeting at a barrier; more rows are in a phase
// of their own, once for all. A row's bits are the same either way, and those of the norm as an operator of its own.
class MatmulInput {
 public:
  // Rows of k terms of input 0, which are quantized if `int8`. `norm`: what is folded in, its vectors constant.
  MatmulInput(const KernelRequest& request, const std::optional<NormOperands>& norm, bool int8, int64_t k);

  // True if there is something to do: phase 0 of the kernel is for that.
  bool has_phase() const noexcept { return int8_ || norm_; }
  int64_t units(int64_t rows) const noexcept;
  double cost(int64_t rows) const noexcept;
  // Of Call::scratch.
  size_t shared_bytes(int64_t rows) const noexcept;
  // Of a worker's scratch, for prepare() and for rows().
  size_t worker_bytes() const noexcept;

  // Units [begin, end) of the phase.
  void prepare(const Call& call, int64_t begin, int64_t end, std::byte* scratch) const noexcept;
  // What the product reads; prepared here and now, into `scratch`, where each worker does so for itself.
  MatmulRows rows(const Call& call, std::byte* scratch) const noexcept;
  // The same where that was in a phase of its own.
  MatmulRows shared_rows(const Call& call) const noexcept;

 private:
  bool prepares_alone(int64_t rows) const noexcept { return rows <= own_rows_; }
  MatmulRows bind(std::byte* memory, int64_t rows) const noexcept;
  size_t bytes(int64_t rows) const noexcept;
  void prepare_row(const float* x, const MatmulRows& to, int64_t row, float* normed) const noexcept;

  bool int8_;
  int64_t k_;
  int64_t own_rows_;   // up to so many rows each worker prepares for itself
  int64_t unit_rows_;  // of the phase
  bool norm_ = false;
  kernels::NormParameters parameters_;
  NormVector weight_;
  NormVector bias_;
};

}  // namespace atb
