// SPDX-License-Identifier: Apache-2.0
// The rows of a strided view (all axes but the last), as runs of one stride.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace atb {

// Rows are numbered row-major over the leading axes. Rows of one run are stride() elements apart; a dense view is one
// run. The last axis has stride 1.
class RowRuns {
 public:
  explicit RowRuns(const TensorView& view) : view_(view) {
    for (int axis = view.rank - 2; axis >= 0; --axis) {
      const auto i = static_cast<size_t>(axis);
      if (view.shape[i] == 1) continue;
      if (length_ == 1) {
        stride_ = view.stride[i];
      } else if (view.stride[i] != stride_ * length_) {
        return;
      }
      length_ *= view.shape[i];
    }
  }

  int64_t stride() const { return stride_; }
  // One past the last row of the run that holds `row`.
  int64_t run_end(int64_t row) const { return (row / length_ + 1) * length_; }
  float* row(int64_t row) const {
    int64_t offset = row % length_ * stride_;
    int64_t run = row / length_;
    int64_t inner = length_;
    for (int axis = view_.rank - 2; axis >= 0 && run > 0; --axis) {
      const auto i = static_cast<size_t>(axis);
      if (inner > 1) {  // an axis of the run
        inner /= view_.shape[i];
        continue;
      }
      offset += run % view_.shape[i] * view_.stride[i];
      run /= view_.shape[i];
    }
    return view_.as<float>() + offset;
  }

 private:
  const TensorView& view_;
  int64_t length_ = 1;
  int64_t stride_ = 0;
};

}  // namespace atb
