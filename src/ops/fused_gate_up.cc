// SPDX-License-Identifier: Apache-2.0
// fused_gate_up: the gated first half of a feed-forward block, without a round trip of gate and up.
#include "ops/folded_norm_util.h"
#include "ops/fused_activation_util.h"
#include "ops/linear_util.h"
#include "ops/matmul_kernel.h"

namespace atb {
namespace {

constexpr size_t kNormWeight = 3;

std::vector<Type> infer_fused_gate_up(const InferArgs& args) {
  const Dim rows = require_linear_inputs(args);
  const std::string& name = args.attrs.text("activation");
  if (name == "none" || !activation_named(name)) {
    args.fail("activation \"" + name + "\": use silu, gelu_none, gelu_tanh or relu");
  }
  if (!rows.is_constant() || rows.constant() % 2 != 0) {
    args.fail("w has " + rows.str() + " rows: expected an even number, gate rows then as many up rows");
  }
  require_folded_norm(args, kNormWeight);
  Type out = args.type(0);
  out.shape.back() = Dim(rows.constant() / 2);
  return {out};
}

std::vector<Value*> decompose_fused_gate_up(Builder& b, std::span<Value* const> inputs, const Attrs& attrs) {
  Value* bias = inputs.size() > 2 ? inputs[2] : nullptr;
  const int64_t features = inputs[1]->dim(0).constant() / 2;
  Value* x = folded_norm(b, inputs, attrs, kNormWeight);
  const auto half = [&](int64_t first) {
    Value* part = bias == nullptr ? nullptr : weight_rows(b, bias, first, features);
    return b("linear", {x, weight_rows(b, inputs[1], first, features), part});
  };
  Value* gate = half(0);
  return {b("mul", {activated(b, attrs.text("activation"), gate), half(features)})};
}

}  // namespace

void register_op_fused_gate_up(OpRegistry& registry) {
  OpDef op;
  op.name = "fused_gate_up";
  op.doc =
      "out = act(x Wg^T + bg) * (x Wu^T + bu), w = [Wg; Wu], x after its norm where there is one. Shazeer 2020, arXiv "
      "2002.05202.";
  op.inputs = {{"x"}, {"w"}, {"bias", true}, {"norm_weight", true}, {"norm_bias", true}};
  op.attrs = folded_norm_attrs();
  op.attrs.push_back(
      {"activation", AttrKind::kText, std::string(), true, "silu, gelu_none, gelu_tanh or relu, of the gate"});
  op.fused = true;
  op.infer = infer_fused_gate_up;
  op.flops = linear_flops;
  op.decompose = decompose_fused_gate_up;
  op.make_cpu_kernel = [](const KernelRequest& request) {
    const int64_t features = request.node.output()->shape().back().constant();
    return make_matmul_kernel(request, {.splits = {features},
                                        .activation = *activation_named(request.node.attrs().text("activation")),
                                        .gated = true,
                                        .norm = folded_norm_operands(request.node, kNormWeight),
                                        .residual = -1});
  };
  registry.add(std::move(op));
}

}  // namespace atb
