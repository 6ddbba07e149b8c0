// SPDX-License-Identifier: Apache-2.0
// where: elementwise choice.
#include "ops/elementwise_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_where(const InferArgs& args) {
  require_bool(args, 0);
  require_no_state(args);
  require_same_kind(args, 1, 2);
  const Shape branches = broadcast_shape(args, args.type(1).shape, args.type(2).shape);
  return {{result_dtype(args), broadcast_shape(args, args.type(0).shape, branches)}};
}

// cond is bytes; a, b and the result are of one dtype, read as Element of its size.
template <class Element>
class WhereKernel final : public Kernel {
 public:
  explicit WhereKernel(std::string variant) : variant_(std::move(variant)) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override { return call.outputs[0].rows(); }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(call.outputs[0].size()) * (1 + 3 * sizeof(Element));
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
      const auto* a = call.inputs[1].as<const Element>() + broadcast_row_offset(call.inputs[1], out, row);
      const auto* b = call.inputs[2].as<const Element>() + broadcast_row_offset(call.inputs[2], out, row);
      Element* result = out.as<Element>() + broadcast_row_offset(out, out, row);
      for (int64_t i = 0; i < n; ++i) result[i] = cond[i * cond_stride] != 0 ? a[i * a_stride] : b[i * b_stride];
    }
  }
  bool takes_any_strides() const override { return true; }
  std::string variant(const Call& /*call*/) const override { return variant_; }

 private:
  std::string variant_;
};

std::unique_ptr<Kernel> make_where_kernel(const KernelRequest& request) {
  const DType dtype = request.node.output()->type().dtype;
  if (!plain_operands(request.node)) return nullptr;
  if (request.node.input(1)->type().dtype != dtype || request.node.input(2)->type().dtype != dtype) return nullptr;
  const std::string variant = "where_" + std::string(dtype_name(dtype));
  switch (dtype_size(dtype)) {
    case 1:
      return std::make_unique<WhereKernel<uint8_t>>(variant);
    case 2:
      return std::make_unique<WhereKernel<uint16_t>>(variant);
    case 4:
      return std::make_unique<WhereKernel<uint32_t>>(variant);
    default:
      return std::make_unique<WhereKernel<uint64_t>>(variant);
  }
}

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
  op.make_cpu_kernel = make_where_kernel;
  registry.add(std::move(op));
}

}  // namespace atb
