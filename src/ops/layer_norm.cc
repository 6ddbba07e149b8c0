// SPDX-License-Identifier: Apache-2.0
// layer_norm over the last axis.
#include "ops/norm_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_layer_norm(const InferArgs& args) {
  require_norm_inputs(args, 0, 1, 2);
  return {{args.type(0).dtype, args.type(0).shape}};
}

}  // namespace

void register_op_layer_norm(OpRegistry& registry) {
  OpDef op;
  op.name = "layer_norm";
  op.doc =
      "out = (x - mean) / sqrt(variance + eps) * w + b over the last axis; the variance divides by H. "
      "Ba, Kiros and Hinton 2016, arXiv 1607.06450.";
  op.inputs = {{"x"}, {"w", true}, {"b", true}};
  op.outputs = {{"out", -1, 0}};
  op.attrs = {{"eps", AttrKind::kReal, 0.0, true, "added to the variance"}};
  op.infer = infer_layer_norm;
  op.flops = [](const Node& node) { return Dim(7) * num_elements(node.output()->shape()); };
  op.reference = reference_kernel([](auto& call) {
    const auto& x = *call.inputs[0];
    const auto data = [&](size_t i) {
      return i < call.inputs.size() && call.inputs[i] != nullptr ? call.inputs[i]->f.data() : nullptr;
    };
    const int64_t n = last_extent(x.shape);
    for (int64_t row = 0; row < row_count(x.shape); ++row) {
      layer_norm_row(x.f.data() + row * n, data(1), data(2), call.node.attrs().real("eps"), n,
                     call.outputs[0]->f.data() + row * n);
    }
  });
  op.make_cpu_kernel = [](const KernelRequest& request) {
    return make_norm_kernel(request, {.x = 0, .weight = 1, .bias = 2, .residual = -1, .layer = true});
  };
  registry.add(std::move(op));
}

}  // namespace atb
