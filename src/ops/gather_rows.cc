// SPDX-License-Identifier: Apache-2.0
// gather_rows: picks rows of an activation, such as those whose logits are needed.
#include <algorithm>

#include "ir/kernel.h"
#include "ops/infer_util.h"

namespace atb {
namespace {

std::vector<Type> infer_gather_rows(const InferArgs& args) {
  require_float(args, 0);
  require_rank(args, 0, 2);
  require_integer(args, 1);
  require_rank(args, 1, 1);
  return {{args.type(0).dtype, {args.type(1).shape[0], args.type(0).shape[1]}}};
}

// Row numbers, the rows picked, and the result.
Dim gather_rows_bytes(const Node& node) {
  const Type& out = node.output()->type();
  const Dim index_bytes(static_cast<int64_t>(dtype_size(node.input(1)->type().dtype)));
  return out.shape[0] * index_bytes +
         Dim(2) * num_elements(out.shape) * Dim(static_cast<int64_t>(dtype_size(out.dtype)));
}

template <class T>
void gather_rows_reference(RefCall<T>& call) {
  const RefTensor<T>& x = *call.inputs[0];
  T* out = call.outputs[0]->f.data();
  for (const int64_t row : call.inputs[1]->i) {
    require(row >= 0 && row < x.shape[0], Code::kInvalidArgument, "[gather_rows] ", call.node.name(), ": row ", row,
            " of ", x.shape[0]);
    out = std::copy_n(x.f.data() + row * x.shape[1], x.shape[1], out);
  }
}

// One unit a row. A row number outside x, which callers refuse beforehand, gives a row of zeros.
class GatherRowsKernel final : public Kernel {
 public:
  int64_t units(const Call& call, int /*phase*/) const noexcept override { return call.outputs[0].dim(0); }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(call.outputs[0].size()) * 8;
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const TensorView& x = call.inputs[0];
    const TensorView& rows = call.inputs[1];
    const TensorView& out = call.outputs[0];
    const int64_t width = out.dim(1);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = rows.dtype == DType::kI64 ? rows.as<const int64_t>()[i] : rows.as<const int32_t>()[i];
      float* result = out.as<float>() + i * out.stride[0];
      if (row >= 0 && row < x.dim(0)) {
        std::copy_n(x.as<const float>() + row * x.stride[0], width, result);
      } else {
        std::fill_n(result, width, 0.0f);
        if (call.fault != nullptr) call.fault->store(true, std::memory_order_relaxed);
      }
    }
  }
  std::string variant(const Call& /*call*/) const override { return "gather_rows_f32"; }
};

}  // namespace

void register_op_gather_rows(OpRegistry& registry) {
  OpDef op;
  op.name = "gather_rows";
  op.doc = "out[l, h] = x[rows[l], h]; rows must lie in [0, T). Only the gathered rows count as bytes read.";
  op.inputs = {{"x"}, {"rows"}};
  op.infer = infer_gather_rows;
  op.bytes = gather_rows_bytes;
  op.reference = reference_kernel([](auto& call) { gather_rows_reference(call); });
  op.make_cpu_kernel = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    return request.node.input(0)->type().dtype == DType::kF32 ? std::make_unique<GatherRowsKernel>() : nullptr;
  };
  registry.add(std::move(op));
}

}  // namespace atb
