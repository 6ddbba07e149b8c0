// SPDX-License-Identifier: Apache-2.0
// concat: tensors side by side along one axis.
#include <algorithm>

#include "ir/kernel.h"
#include "ops/copy_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_concat(const InferArgs& args) {
  if (args.inputs.empty()) args.fail("needs one input or more");
  require_no_state(args);
  const Type& first = args.type(0);
  const size_t axis = require_axis(args, args.attrs.integer("axis"), args.inputs[0]->rank());
  Shape shape = first.shape;
  for (size_t i = 1; i < args.inputs.size(); ++i) {
    const Type& type = args.type(i);
    if (type.dtype != first.dtype) args.fail("dtypes differ: " + first.str() + " and " + type.str());
    require_rank(args, i, args.inputs[0]->rank());
    for (size_t k = 0; k < shape.size(); ++k) {
      if (k != axis) require_equal(args, shape[k], type.shape[k], "extents beside the axis");
    }
    shape[axis] = shape[axis] + type.shape[axis];
  }
  return {{first.dtype, std::move(shape)}};
}

template <class T>
void concat_reference(RefCall<T>& call) {
  RefTensor<T>& out = *call.outputs[0];
  const size_t axis = axis_of(call.node);
  int64_t inner = 1;  // elements of one step along the axis
  for (size_t k = axis + 1; k < out.shape.size(); ++k) inner *= out.shape[k];
  const auto period = out.shape[axis] * inner;
  int64_t start = 0;
  for (const RefTensor<T>* x : call.inputs) {
    const int64_t piece = x->shape[axis] * inner;
    for (int64_t i = 0; i < x->size(); ++i) {
      const auto from = static_cast<size_t>(i);
      const auto to = static_cast<size_t>(i / piece * period + start + i % piece);
      if (is_float(out.dtype)) {
        out.f[to] = x->f[from];
      } else {
        out.i[to] = x->i[from];
      }
    }
    start += piece;
  }
}

// One unit a row of an input, input after input.
class ConcatKernel final : public Kernel {
 public:
  explicit ConcatKernel(size_t axis) : axis_(axis) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override {
    int64_t rows = 0;
    for (const TensorView& x : call.inputs) rows += x.rows();
    return rows;
  }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return 2.0 * static_cast<double>(call.outputs[0].size()) * static_cast<double>(dtype_size(call.outputs[0].dtype));
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const TensorView& out = call.outputs[0];
    int64_t first_unit = 0;
    int64_t start = 0;
    for (const TensorView& x : call.inputs) {
      const int64_t first = std::max(begin, first_unit) - first_unit;
      const int64_t last = std::min(end, first_unit + x.rows()) - first_unit;
      if (first < last) copy_rows(x, narrowed(out, axis_, start, x.shape[axis_]), first, last);
      first_unit += x.rows();
      start += x.shape[axis_];
    }
  }
  bool takes_any_strides() const override { return true; }
  std::string variant(const Call& call) const override {
    return "concat_" + std::string(dtype_name(call.outputs[0].dtype));
  }

 private:
  size_t axis_;
};

}  // namespace

void register_op_concat(OpRegistry& registry) {
  OpDef op;
  op.name = "concat";
  op.doc = "Tensors of one dtype side by side along `axis`; their other extents must be proven equal.";
  op.inputs = {{"x", false, true}};
  op.attrs = {{"axis", AttrKind::kInt, int64_t{0}, true, "may count from the end"}};
  op.infer = infer_concat;
  op.reference = reference_kernel([](auto& call) { concat_reference(call); });
  op.make_cpu_kernel = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    return plain_operands(request.node) ? std::make_unique<ConcatKernel>(axis_of(request.node)) : nullptr;
  };
  registry.add(std::move(op));
}

}  // namespace atb
