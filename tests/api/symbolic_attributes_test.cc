// SPDX-License-Identifier: Apache-2.0
// Bounds of slices that do not hold for the symbols of a call, and indices outside, fail that call.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/compiled_graph.h"
#include "core/error.h"
#include "ir/text.h"

namespace atb {
namespace {

template <class Element>
TensorView view_of(std::vector<Element>& values, DType dtype, std::vector<int64_t> shape) {
  return TensorView::dense(reinterpret_cast<std::byte*>(values.data()), dtype, shape);
}

template <class Element>
std::vector<Element> values_of(const Tensor& tensor) {
  const Element* data = tensor.view().as<const Element>();
  return {data, data + tensor.view().size()};
}

TEST(SymbolicAttributes, BoundsThatDoNotHoldAreRefusedWithTheirValues) {
  CompiledGraph compiled(parse_graph(R"(
graph @head(%x: f32[T]) {
  symbols T in [1, 100]
  %y = slice(%x) {axis=0, bounds=[0, 4]} : f32[4]
  return %y
}
)"));
  std::vector<float> x(8);
  EXPECT_NO_THROW(compiled.run({{view_of(x, DType::kF32, {8})}}));
  try {
    compiled.run({{view_of(x, DType::kF32, {3})}});
    ADD_FAILURE() << "read beyond x";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    const std::string text = error.what();
    EXPECT_NE(text.find("0 <= begin <= end <= 3 must hold"), std::string::npos) << text;
    EXPECT_NE(text.find("T = 3"), std::string::npos) << text;
  }
}

TEST(SymbolicAttributes, IndicesOutsideFailTheCallAndNotTheNext) {
  CompiledGraph compiled(parse_graph(R"(
graph @pick(%x: f32[4], %i: i64[N]) {
  symbols N in [1, 100]
  %y = take(%x, %i) : f32[N]
  return %y
}
)"));
  std::vector<float> x{10, 11, 12, 13};
  std::vector<int64_t> outside{1, 4}, inside{-1, 2};
  EXPECT_THROW(compiled.run({{view_of(x, DType::kF32, {4}), view_of(outside, DType::kI64, {2})}}), Error);
  const std::vector<Tensor> out = compiled.run({{view_of(x, DType::kF32, {4}), view_of(inside, DType::kI64, {2})}});
  EXPECT_EQ(values_of<float>(out[0]), (std::vector<float>{13, 12}));
}

}  // namespace
}  // namespace atb
