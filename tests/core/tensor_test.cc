// SPDX-License-Identifier: Apache-2.0
// Strided views.
#include "core/tensor.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"

namespace atb {
namespace {

TEST(TensorView, DenseStridesAndContiguity) {
  const std::vector<int64_t> shape = {2, 3, 4};
  TensorView view = TensorView::dense(nullptr, DType::kF32, shape);
  EXPECT_EQ(view.stride[0], 12);
  EXPECT_EQ(view.stride[1], 4);
  EXPECT_EQ(view.stride[2], 1);
  EXPECT_EQ(view.size(), 24);
  EXPECT_EQ(view.rows(), 6);
  EXPECT_EQ(view.dim(-1), 4);
  EXPECT_TRUE(view.contiguous());
  view.stride[0] = 16;
  EXPECT_FALSE(view.contiguous());
  view.shape[0] = 1;  // the stride of an axis of extent 1 means nothing
  EXPECT_TRUE(view.contiguous());
  view.shape[1] = 0;
  EXPECT_TRUE(view.contiguous());
}

TEST(TensorView, RefusesTooHighARank) {
  const std::vector<int64_t> shape(9, 1);
  EXPECT_THROW(TensorView::dense(nullptr, DType::kF32, shape), Error);
}

}  // namespace
}  // namespace atb
