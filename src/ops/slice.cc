// SPDX-License-Identifier: Apache-2.0
// slice: a range of one axis.
#include <algorithm>

#include "ir/kernel.h"
#include "ops/copy_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_slice(const InferArgs& args) {
  require_no_state(args);
  const size_t axis = require_axis(args, args.attrs.integer("axis"), args.inputs[0]->rank());
  const Shape& bounds = args.attrs.get<Shape>("bounds");
  if (bounds.size() != 2) args.fail("bounds " + to_string(bounds) + " must be [begin, end]");
  const int64_t step = args.attrs.integer("step");
  if (step < 1) args.fail("step " + std::to_string(step) + " must be 1 or more");
  Shape shape = args.type(0).shape;
  // What symbols leave open is decided when they have values (check_bound_shapes).
  if (bounds[0].upper() < 0 || (bounds[1] - bounds[0]).upper() < 0 || (shape[axis] - bounds[1]).upper() < 0) {
    args.fail("bounds " + to_string(bounds) + ": 0 <= begin <= end <= " + shape[axis].str() + " must hold");
  }
  shape[axis] = Dim::floordiv(bounds[1] - bounds[0] + Dim(step - 1), Dim(step));
  return {{args.type(0).dtype, std::move(shape)}};
}

// Only what is kept is read.
Dim slice_bytes(const Node& node) {
  const Type& out = node.output()->type();
  return Dim(2) * num_elements(out.shape) * Dim(static_cast<int64_t>(dtype_size(out.dtype)));
}

template <class T>
void slice_reference(RefCall<T>& call) {
  const RefTensor<T>& x = *call.inputs[0];
  RefTensor<T>& out = *call.outputs[0];
  const size_t axis = axis_of(call.node);
  const std::vector<int64_t> bounds = eval(call.node.attrs().template get<Shape>("bounds"), call.bindings);
  require(0 <= bounds[0] && bounds[0] <= bounds[1] && bounds[1] <= x.shape[axis], Code::kInvalidArgument, "[slice] ",
          call.node.name(), ": bounds ", bounds[0], ", ", bounds[1], " of ", x.shape[axis]);
  std::vector<int64_t> strides = dense_strides(x.shape);
  const int64_t offset = bounds[0] * strides[axis];
  strides[axis] *= call.node.attrs().integer("step");
  reference_gather(x, out, offset, strides);
}

// One unit a row. Bounds outside x, which callers refuse beforehand, are no reads.
class SliceKernel final : public Kernel {
 public:
  SliceKernel(size_t axis, int64_t step) : axis_(axis), step_(step) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override { return call.outputs[0].rows(); }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return 2.0 * static_cast<double>(call.outputs[0].size()) * static_cast<double>(dtype_size(call.inputs[0].dtype));
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const TensorView& x = call.inputs[0];
    const TensorView& out = call.outputs[0];
    const int64_t first = call.dims[0];
    const int64_t extent = out.shape[axis_];
    if (extent == 0) return;
    if (first < 0 || first + (extent - 1) * step_ >= x.shape[axis_]) {
      if (call.fault != nullptr) call.fault->store(true, std::memory_order_relaxed);
      return;
    }
    copy_rows(narrowed(x, axis_, first, extent, step_), out, begin, end);
  }
  bool takes_any_strides() const override { return true; }
  std::string variant(const Call& call) const override {
    return "slice_" + std::string(dtype_name(call.inputs[0].dtype));
  }

 private:
  size_t axis_;
  int64_t step_;
};

}  // namespace

void register_op_slice(OpRegistry& registry) {
  OpDef op;
  op.name = "slice";
  op.doc =
      "Elements begin, begin + step, ... before end along `axis` of x; out has ceil((end - begin) / step) of them. "
      "0 <= begin <= end <= extent, begin and end may have symbols. Only what is kept counts as bytes read.";
  op.inputs = {{"x"}};
  op.attrs = {{"axis", AttrKind::kInt, int64_t{0}, true, "may count from the end"},
              {"bounds", AttrKind::kShape, Shape{}, true, "[begin, end]"},
              {"step", AttrKind::kInt, int64_t{1}, false, "1 or more"}};
  op.infer = infer_slice;
  op.bytes = slice_bytes;
  op.reference = reference_kernel([](auto& call) { slice_reference(call); });
  op.make_cpu_kernel = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    if (!plain_operands(request.node)) return nullptr;
    return std::make_unique<SliceKernel>(axis_of(request.node), request.node.attrs().integer("step"));
  };
  registry.add(std::move(op));
}

}  // namespace atb
