// SPDX-License-Identifier: Apache-2.0
// broadcast: repeats along axes of extent 1, and along new leading axes.
#include "ir/kernel.h"
#include "ops/copy_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_broadcast(const InferArgs& args) {
  require_no_state(args);
  const Shape& shape = args.attrs.get<Shape>("shape");
  const Shape& from = args.type(0).shape;
  if (from.size() > shape.size() || equal(broadcast_shape(args, from, shape), shape) != Tri::kYes) {
    args.fail("x " + to_string(from) + " does not broadcast to shape " + to_string(shape));
  }
  return {{args.type(0).dtype, shape}};
}

// One unit a row.
class BroadcastKernel final : public Kernel {
 public:
  int64_t units(const Call& call, int /*phase*/) const noexcept override { return call.outputs[0].rows(); }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(call.outputs[0].size()) * static_cast<double>(dtype_size(call.inputs[0].dtype));
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const TensorView& x = call.inputs[0];
    const TensorView& out = call.outputs[0];
    TensorView repeated = out;
    repeated.data = x.data;
    for (int axis = 0; axis < out.rank; ++axis) {
      const int own = axis - (out.rank - x.rank);
      const bool moves = own >= 0 && x.shape[static_cast<size_t>(own)] != 1;
      repeated.stride[static_cast<size_t>(axis)] = moves ? x.stride[static_cast<size_t>(own)] : 0;
    }
    copy_rows(repeated, out, begin, end);
  }
  bool takes_any_strides() const override { return true; }
  std::string variant(const Call& call) const override {
    return "broadcast_" + std::string(dtype_name(call.inputs[0].dtype));
  }
};

}  // namespace

void register_op_broadcast(OpRegistry& registry) {
  OpDef op;
  op.name = "broadcast";
  op.doc = "x repeated to `shape`: aligned at the last axis, each extent of x is that of `shape` or 1.";
  op.inputs = {{"x"}};
  op.attrs = {{"shape", AttrKind::kShape, Shape{}, true, "extents of the result"}};
  op.infer = infer_broadcast;
  op.reference = reference_kernel([](auto& call) {
    reference_gather(*call.inputs[0], *call.outputs[0], 0,
                     broadcast_strides(call.inputs[0]->shape, call.outputs[0]->shape));
  });
  op.make_cpu_kernel = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    return plain_operands(request.node) ? std::make_unique<BroadcastKernel>() : nullptr;
  };
  registry.add(std::move(op));
}

}  // namespace atb
