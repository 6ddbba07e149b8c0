// SPDX-License-Identifier: Apache-2.0
// where: elementwise choice.
#include "ops/elementwise_util.h"
#include "ops/infer_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_where(const InferArgs& args) {
  if (args.type(0).dtype != DType::kBool) args.fail("cond " + args.type(0).str() + " must be bool");
  for (size_t i = 1; i < 3; ++i) {
    if (args.type(i).dtype == DType::kState) args.fail("a state cannot be chosen from");
  }
  if (is_float(args.type(1).dtype) != is_float(args.type(2).dtype)) {
    args.fail("a " + args.type(1).str() + " and b " + args.type(2).str() + " differ in kind");
  }
  const Shape branches = broadcast_shape(args, args.type(1).shape, args.type(2).shape);
  return {{args.type(1).dtype, broadcast_shape(args, args.type(0).shape, branches)}};
}

// cond is bytes, a and b are f32.
class WhereKernel final : public Kernel {
 public:
  int64_t units(const Call& call, int /*phase*/) const noexcept override { return call.outputs[0].rows(); }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(call.outputs[0].size()) * 13;
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const TensorView& out = call.outputs[0];
    const int64_t n = out.rank == 0 ? 1 : out.dim(-1);
    const int64_t cond_stride = broadcast_last_stride(call.inputs[0]);
    const int64_t a_stride = broadcast_last_stride(call.inputs[1]);
    const int64_t b_stride = broadcast_last_stride(call.inputs[2]);
    for (int64_t row = begin; row < end; ++row) {
      const auto* cond = call.inputs[0].as<const uint8_t>() + broadcast_row_offset(call.inputs[0], out, row);
      const auto* a = call.inputs[1].as<const float>() + broadcast_row_offset(call.inputs[1], out, row);
      const auto* b = call.inputs[2].as<const float>() + broadcast_row_offset(call.inputs[2], out, row);
      float* result = out.as<float>() + broadcast_row_offset(out, out, row);
      for (int64_t i = 0; i < n; ++i) result[i] = cond[i * cond_stride] != 0 ? a[i * a_stride] : b[i * b_stride];
    }
  }
  bool takes_any_strides() const override { return true; }
  std::string variant(const Call& /*call*/) const override { return "where_f32"; }
};

}  // namespace

void register_op_where(OpRegistry& registry) {
  OpDef op;
  op.name = "where";
  op.doc = "out = cond ? a : b, elementwise with numpy broadcasting.";
  op.inputs = {{"cond"}, {"a"}, {"b"}};
  op.infer = infer_where;
  op.reference = reference_kernel([](auto& call) {
    const auto& cond = *call.inputs[0];
    const auto& a = *call.inputs[1];
    const auto& b = *call.inputs[2];
    auto& out = *call.outputs[0];
    for_each_broadcast<3>(out.shape, {cond.shape, a.shape, b.shape}, [&](size_t o, const std::array<int64_t, 3>& at) {
      const bool first = cond.i[static_cast<size_t>(at[0])] != 0;
      const auto& branch = first ? a : b;
      const auto from = static_cast<size_t>(first ? at[1] : at[2]);
      if (is_float(out.dtype)) {
        out.f[o] = branch.f[from];
      } else {
        out.i[o] = branch.i[from];
      }
    });
  });
  op.make_cpu_kernel = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    const bool f32 =
        request.node.input(1)->type().dtype == DType::kF32 && request.node.input(2)->type().dtype == DType::kF32;
    return f32 ? std::make_unique<WhereKernel>() : nullptr;
  };
  registry.add(std::move(op));
}

}  // namespace atb
