// SPDX-License-Identifier: Apache-2.0
// rms_norm over the last axis.
#include "ops/norm_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_rms_norm(const InferArgs& args) {
  require_norm_inputs(args, 0, 1, 2);
  return {{args.type(0).dtype, args.type(0).shape}};
}

}  // namespace

void register_op_rms_norm(OpRegistry& registry) {
  OpDef op;
  op.name = "rms_norm";
  op.doc = "out = x / sqrt(mean(x^2) + eps) * w over the last axis. Zhang and Sennrich 2019, arXiv 1910.07467.";
  op.inputs = {{"x"}, {"w"}};
  op.outputs = {{"out", -1, 0}};
  op.attrs = {{"eps", AttrKind::kReal, 0.0, true, "added to the mean of squares"}};
  op.infer = infer_rms_norm;
  op.flops = [](const Node& node) { return Dim(4) * num_elements(node.output()->shape()); };
  op.reference = reference_kernel([](auto& call) {
    const auto& x = *call.inputs[0];
    const int64_t n = last_extent(x.shape);
    for (int64_t row = 0; row < row_count(x.shape); ++row) {
      rms_norm_row(x.f.data() + row * n, call.inputs[1]->f.data(), call.node.attrs().real("eps"), n,
                   call.outputs[0]->f.data() + row * n);
    }
  });
  op.make_cpu_kernel = [](const KernelRequest& request) { return make_norm_kernel(request, {}); };
  registry.add(std::move(op));
}

}  // namespace atb
