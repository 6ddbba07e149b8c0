// SPDX-License-Identifier: Apache-2.0
#include "ops/reduce_kernel.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/binary_math_util.h"
#include "ops/infer_util.h"

namespace atb {
namespace {

// Axes that are walked together: extents and strides in elements.
struct Axes {
  int rank = 0;
  std::array<int64_t, kMaxRank> extent{};
  std::array<int64_t, kMaxRank> stride{};

  void add(int64_t axis_extent, int64_t axis_stride) {
    extent[static_cast<size_t>(rank)] = axis_extent;
    stride[static_cast<size_t>(rank++)] = axis_stride;
  }
  int64_t size() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= extent[static_cast<size_t>(i)];
    return n;
  }
  // Offset of the row-major position `index`.
  int64_t offset(int64_t index) const {
    int64_t result = 0;
    for (int i = rank; i-- > 0;) {
      result += index % extent[static_cast<size_t>(i)] * stride[static_cast<size_t>(i)];
      index /= extent[static_cast<size_t>(i)];
    }
    return result;
  }
};

template <class T>
struct Sum {
  static constexpr T kStart = 0;
  T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct Max {
  static constexpr T kStart =
      std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  T operator()(T a, T b) const { return larger(a, b); }
};

// One unit a result. Elements along the last reduced axis go to kLanes partial results by turns, which are combined in
// order at the end, so that the order depends on the extents alone.
template <class In, class Out, class Function>
class ReduceKernel final : public Kernel {
 public:
  ReduceKernel(std::string variant, std::vector<bool> reduced, bool mean)
      : variant_(std::move(variant)), reduced_(std::move(reduced)), mean_(mean) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override { return call.outputs[0].size(); }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(call.inputs[0].size()) * static_cast<double>(sizeof(In));
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const TensorView& x = call.inputs[0];
    Axes kept, outer;
    int64_t n = 1;  // of the last reduced axis
    int64_t stride = 0;
    for (int axis = 0; axis < x.rank; ++axis) {
      const auto a = static_cast<size_t>(axis);
      if (!reduced_[a]) {
        kept.add(x.shape[a], x.stride[a]);
      } else if (axis == last_reduced()) {
        n = x.shape[a];
        stride = x.stride[a];
      } else {
        outer.add(x.shape[a], x.stride[a]);
      }
    }
    const int64_t rows = outer.size();
    Out* out = call.outputs[0].template as<Out>();
    for (int64_t unit = begin; unit < end; ++unit) {
      const In* start = x.template as<const In>() + kept.offset(unit);
      Partials partials;
      partials.fill(Function::kStart);
      for (int64_t row = 0; row < rows; ++row) reduce_row(start + outer.offset(row), stride, n, partials);
      Out result = Function::kStart;
      for (const Out partial : partials) result = Function()(result, partial);
      out[unit] = mean_ ? static_cast<Out>(result / static_cast<Out>(rows * n)) : result;
    }
  }
  bool takes_any_strides() const override { return true; }
  std::string variant(const Call& /*call*/) const override { return variant_; }

 private:
  static constexpr size_t kLanes = 16;
  using Partials = std::array<Out, kLanes>;

  static void reduce_row(const In* x, int64_t stride, int64_t n, Partials& partials) {
    constexpr auto kStep = static_cast<int64_t>(kLanes);
    int64_t i = 0;
    for (; i + kStep <= n; i += kStep) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        partials[lane] = Function()(partials[lane], static_cast<Out>(x[(i + static_cast<int64_t>(lane)) * stride]));
      }
    }
    for (size_t lane = 0; i < n; ++i, ++lane)
      partials[lane] = Function()(partials[lane], static_cast<Out>(x[i * stride]));
  }

  int last_reduced() const {
    int last = -1;
    for (size_t axis = 0; axis < reduced_.size(); ++axis) {
      if (reduced_[axis]) last = static_cast<int>(axis);
    }
    return last;
  }

  std::string variant_;
  std::vector<bool> reduced_;
  bool mean_;
};

template <class In>
std::unique_ptr<Kernel> make_sum_kernel(std::string variant, std::vector<bool> reduced, bool mean) {
  // Integers are summed in unsigned ones, which wrap around.
  using Out = std::conditional_t<std::is_floating_point_v<In>, In, uint64_t>;
  return std::make_unique<ReduceKernel<In, Out, Sum<Out>>>(std::move(variant), std::move(reduced), mean);
}

template <class In>
std::unique_ptr<Kernel> make_kernel(Reduction reduction, std::string variant, std::vector<bool> reduced) {
  if (reduction == Reduction::kMax) {
    return std::make_unique<ReduceKernel<In, In, Max<In>>>(std::move(variant), std::move(reduced), false);
  }
  return make_sum_kernel<In>(std::move(variant), std::move(reduced), reduction == Reduction::kMean);
}

}  // namespace

int64_t lowest_integer(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return std::numeric_limits<int8_t>::min();
    case DType::kI32:
      return std::numeric_limits<int32_t>::min();
    case DType::kI64:
      return std::numeric_limits<int64_t>::min();
    default:
      return 0;
  }
}

std::unique_ptr<Kernel> make_reduce_kernel(const Node& node, Reduction reduction) {
  const Type& x = node.input(0)->type();
  const auto& axes = node.attrs().get<std::vector<int64_t>>("axes");
  std::vector<bool> reduced(x.shape.size(), axes.empty());
  for (const int64_t axis : axes) reduced[axis_index(axis, reduced.size())] = true;
  const std::string variant = std::string(node.op_name()) + "_" + std::string(dtype_name(x.dtype));
  switch (x.dtype) {
    case DType::kF32:
      return make_kernel<float>(reduction, variant, reduced);
    case DType::kI32:
      return make_kernel<int32_t>(reduction, variant, reduced);
    case DType::kI64:
      return make_kernel<int64_t>(reduction, variant, reduced);
    case DType::kBool:
      return make_kernel<uint8_t>(reduction, variant, reduced);
    default:
      return nullptr;
  }
}

}  // namespace atb
