// SPDX-License-Identifier: Apache-2.0
// take: elements or slices by integer arrays on the leading axes.
#include <algorithm>
#include <cstring>

#include "ir/kernel.h"
#include "ops/copy_util.h"
#include "ops/elementwise_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_take(const InferArgs& args) {
  require_no_state(args);
  const Type& x = args.type(0);
  const size_t count = args.inputs.size() - 1;
  if (count == 0 || count > x.shape.size()) {
    args.fail(std::to_string(count) + " indices for x " + x.str() + ": one to as many as it has axes");
  }
  Shape shape;
  for (size_t i = 1; i <= count; ++i) {
    require_integer(args, i);
    shape = i == 1 ? args.type(i).shape : broadcast_shape(args, shape, args.type(i).shape);
  }
  shape.insert(shape.end(), x.shape.begin() + static_cast<std::ptrdiff_t>(count), x.shape.end());
  return {{x.dtype, std::move(shape)}};
}

// Indices, what is taken, and the result.
Dim take_bytes(const Node& node) {
  const Type& out = node.output()->type();
  Dim bytes = Dim(2) * num_elements(out.shape) * Dim(static_cast<int64_t>(dtype_size(out.dtype)));
  for (size_t i = 1; i < node.inputs().size(); ++i) {
    const Type& index = node.input(i)->type();
    bytes = bytes + num_elements(index.shape) * Dim(static_cast<int64_t>(dtype_size(index.dtype)));
  }
  return bytes;
}

template <class T>
void take_reference(RefCall<T>& call) {
  const RefTensor<T>& x = *call.inputs[0];
  RefTensor<T>& out = *call.outputs[0];
  const size_t count = call.inputs.size() - 1;
  const std::vector<int64_t> strides = dense_strides(x.shape);
  int64_t inner = 1;
  for (size_t axis = count; axis < x.shape.size(); ++axis) inner *= x.shape[axis];
  const std::vector<int64_t> places(out.shape.begin(),
                                    out.shape.end() - static_cast<std::ptrdiff_t>(x.shape.size() - count));
  std::vector<int64_t> offsets(static_cast<size_t>(inner == 0 ? 0 : out.size() / inner), 0);
  for (size_t k = 0; k < count; ++k) {
    const RefTensor<T>& index = *call.inputs[k + 1];
    if (offsets.empty()) break;
    for_each_broadcast<1>(places, {index.shape}, [&](size_t o, const std::array<int64_t, 1>& at) {
      const int64_t extent = x.shape[k];
      const int64_t given = index.i[static_cast<size_t>(at[0])];
      require(given >= -extent && given < extent, Code::kInvalidArgument, "[take] ", call.node.name(), ": index ",
              given, " of ", extent, " along axis ", k);
      offsets[o] += (given < 0 ? given + extent : given) * strides[k];
    });
  }
  for (size_t o = 0; o < offsets.size(); ++o) {
    const auto to = static_cast<std::ptrdiff_t>(o) * inner;
    if (is_float(x.dtype)) {
      std::copy_n(x.f.begin() + offsets[o], inner, out.f.begin() + to);
    } else {
      std::copy_n(x.i.begin() + offsets[o], inner, out.i.begin() + to);
    }
  }
}

int64_t load_index(const TensorView& index, int64_t offset) {
  return index.dtype == DType::kI64 ? index.as<const int64_t>()[offset] : index.as<const int32_t>()[offset];
}

// One unit a place that the indices name. One outside x, which gives zeros, fails the step.
class TakeKernel final : public Kernel {
 public:
  explicit TakeKernel(int places_rank) : places_rank_(places_rank) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override {
    int64_t places = 1;
    for (int axis = 0; axis < places_rank_; ++axis) places *= call.outputs[0].shape[static_cast<size_t>(axis)];
    return places;
  }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return 2.0 * static_cast<double>(call.outputs[0].size()) * static_cast<double>(dtype_size(call.outputs[0].dtype));
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const TensorView& x = call.inputs[0];
    const TensorView& out = call.outputs[0];
    const int count = static_cast<int>(call.inputs.size()) - 1;
    for (int64_t place = begin; place < end; ++place) {
      const TensorView to = inner_view(out, places_rank_, place);
      const int64_t offset = offset_of(call, place);
      if (offset >= 0) {
        TensorView from = inner_view(x, count, 0);
        if (from.data != nullptr) from.data += offset * static_cast<int64_t>(dtype_size(x.dtype));
        copy_rows(from, to, 0, to.rows());
      } else {
        std::memset(to.data, 0, static_cast<size_t>(to.size()) * dtype_size(out.dtype));
        if (call.fault != nullptr) call.fault->store(true, std::memory_order_relaxed);
      }
    }
  }
  bool takes_any_strides() const override { return true; }
  std::string variant(const Call& call) const override {
    return "take_" + std::string(dtype_name(call.outputs[0].dtype));
  }

 private:
  // Offset in elements of x of what belongs at `place`; -1 where an index is outside.
  int64_t offset_of(const Call& call, int64_t place) const {
    const TensorView& x = call.inputs[0];
    int64_t offset = 0;
    for (size_t k = 1; k < call.inputs.size(); ++k) {
      const TensorView& index = call.inputs[k];
      int64_t at = 0;
      int64_t left = place;
      for (int axis = places_rank_ - 1; axis >= 0; --axis) {
        const int64_t extent = call.outputs[0].shape[static_cast<size_t>(axis)];
        const int own = axis - (places_rank_ - index.rank);
        if (own >= 0 && index.shape[static_cast<size_t>(own)] != 1) {
          at += left % extent * index.stride[static_cast<size_t>(own)];
        }
        left /= extent;
      }
      const int64_t extent = x.shape[k - 1];
      const int64_t given = load_index(index, at);
      if (given < -extent || given >= extent) return -1;
      offset += (given < 0 ? given + extent : given) * x.stride[k - 1];
    }
    return offset;
  }

  int places_rank_;
};

}  // namespace

void register_op_take(OpRegistry& registry) {
  OpDef op;
  op.name = "take";
  op.doc =
      "out = x[i0, i1, ...]: n integer arrays, broadcast together, on the n leading axes of x; out has their shape and "
      "x.shape[n:]. Negative indices count from the end; one outside x fails the step. Only what is taken counts as "
      "bytes read.";
  op.inputs = {{"x"}, {"indices", false, true}};
  op.infer = infer_take;
  op.bytes = take_bytes;
  op.reference = reference_kernel([](auto& call) { take_reference(call); });
  op.make_cpu_kernel = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    if (!plain_operands(request.node)) return nullptr;
    const auto count = static_cast<int>(request.node.inputs().size()) - 1;
    return std::make_unique<TakeKernel>(request.node.output()->rank() - (request.node.input(0)->rank() - count));
  };
  registry.add(std::move(op));
}

}  // namespace atb
