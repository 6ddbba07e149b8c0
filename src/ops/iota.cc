// SPDX-License-Identifier: Apache-2.0
// iota: 0, 1, 2, ....
#include "ir/kernel.h"
#include "ops/infer_util.h"

namespace atb {
namespace {

std::vector<Type> infer_iota(const InferArgs& args) {
  const Shape& shape = args.attrs.get<Shape>("shape");
  if (shape.size() != 1) args.fail("shape " + to_string(shape) + " must have rank 1");
  return {{DType::kI32, shape}};
}

class IotaKernel final : public Kernel {
 public:
  int64_t units(const Call& /*call*/, int /*phase*/) const noexcept override { return 1; }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(call.outputs[0].size()) * 4;
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    if (begin == end) return;
    const int64_t n = call.outputs[0].size();
    int32_t* out = call.outputs[0].as<int32_t>();
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<int32_t>(i);
  }
  std::string variant(const Call& /*call*/) const override { return "iota_i32"; }
};

}  // namespace

void register_op_iota(OpRegistry& registry) {
  OpDef op;
  op.name = "iota";
  op.doc = "out = [0, 1, ..., n - 1] in i32, for shape [n].";
  op.attrs = {{"shape", AttrKind::kShape, Shape{}, true, "[n]"}};
  op.infer = infer_iota;
  op.reference = reference_kernel([](auto& call) {
    auto& out = call.outputs[0]->i;
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int64_t>(i);
  });
  op.make_cpu_kernel = [](const KernelRequest&) { return std::make_unique<IotaKernel>(); };
  registry.add(std::move(op));
}

}  // namespace atb
