// SPDX-License-Identifier: Apache-2.0
// cumsum: running sums along one axis.
#include "ir/kernel.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_cumsum(const InferArgs& args) {
  require_no_state(args);
  require_axis(args, args.attrs.integer("axis"), args.inputs[0]->rank());
  const Type& x = args.type(0);
  return {{is_float(x.dtype) ? x.dtype : DType::kI64, x.shape}};
}

template <class T>
void cumsum_reference(RefCall<T>& call) {
  const RefTensor<T>& x = *call.inputs[0];
  RefTensor<T>& out = *call.outputs[0];
  const size_t axis = axis_of(call.node);
  const auto stride = static_cast<size_t>(dense_strides(x.shape)[axis]);
  const auto extent = static_cast<size_t>(x.shape[axis]);
  for (size_t i = 0; i < static_cast<size_t>(x.size()); ++i) {
    const bool first = i / stride % extent == 0;
    if (is_float(x.dtype)) {
      out.f[i] = first ? x.f[i] : out.f[i - stride] + x.f[i];
    } else {
      const uint64_t before = first ? 0 : static_cast<uint64_t>(out.i[i - stride]);
      out.i[i] = static_cast<int64_t>(before + static_cast<uint64_t>(x.i[i]));
    }
  }
}

// One unit a line along the axis, summed from its start. Sum is f32, or u64, which wraps around.
template <class In, class Sum>
class CumsumKernel final : public Kernel {
 public:
  CumsumKernel(std::string variant, size_t axis) : variant_(std::move(variant)), axis_(axis) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override {
    const int64_t extent = call.outputs[0].shape[axis_];
    return extent == 0 ? 0 : call.outputs[0].size() / extent;
  }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(call.outputs[0].size()) * static_cast<double>(sizeof(In) + sizeof(Sum));
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const TensorView& x = call.inputs[0];
    const TensorView& out = call.outputs[0];
    const int64_t n = out.shape[axis_];
    for (int64_t unit = begin; unit < end; ++unit) {
      const In* from = x.as<const In>() + line_offset(x, unit);
      Sum* to = out.as<Sum>() + line_offset(out, unit);
      Sum sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        sum += static_cast<Sum>(from[i * x.stride[axis_]]);
        to[i * out.stride[axis_]] = sum;
      }
    }
  }
  bool takes_any_strides() const override { return true; }
  std::string variant(const Call& /*call*/) const override { return variant_; }

 private:
  // Offset of the start of the line-th line, row-major over all other axes.
  int64_t line_offset(const TensorView& view, int64_t line) const {
    int64_t offset = 0;
    for (int axis = view.rank; axis-- > 0;) {
      const auto a = static_cast<size_t>(axis);
      if (a == axis_) continue;
      offset += line % view.shape[a] * view.stride[a];
      line /= view.shape[a];
    }
    return offset;
  }

  std::string variant_;
  size_t axis_;
};

std::unique_ptr<Kernel> make_cumsum_kernel(const KernelRequest& request) {
  const DType dtype = request.node.input(0)->type().dtype;
  const size_t axis = axis_of(request.node);
  if (!plain_operands(request.node)) return nullptr;
  switch (dtype) {
    case DType::kF32:
      return std::make_unique<CumsumKernel<float, float>>("cumsum_f32", axis);
    case DType::kI32:
      return std::make_unique<CumsumKernel<int32_t, uint64_t>>("cumsum_i32", axis);
    case DType::kI64:
      return std::make_unique<CumsumKernel<int64_t, uint64_t>>("cumsum_i64", axis);
    case DType::kBool:
      return std::make_unique<CumsumKernel<uint8_t, uint64_t>>("cumsum_bool", axis);
    default:
      return nullptr;
  }
}

}  // namespace

void register_op_cumsum(OpRegistry& registry) {
  OpDef op;
  op.name = "cumsum";
  op.doc = "out[i] = x[0] + ... + x[i] along `axis`; of integers and bools in i64.";
  op.inputs = {{"x"}};
  op.attrs = {{"axis", AttrKind::kInt, int64_t{0}, true, "may count from the end"}};
  op.infer = infer_cumsum;
  op.reference = reference_kernel([](auto& call) { cumsum_reference(call); });
  op.make_cpu_kernel = make_cumsum_kernel;
  registry.add(std::move(op));
}

}  // namespace atb
