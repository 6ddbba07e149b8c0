// SPDX-License-Identifier: Apache-2.0
// fused_gate_up: the gated first half of a feed-forward block, without a round trip of gate and up.
#include <array>

#include "ops/linear_util.h"
#include "ops/matmul_kernel.h"

namespace atb {
namespace {

// How an activation is called in attributes, in kernels, and as a plain operator.
struct ActivationName {
  std::string_view name;
  Activation activation;
  std::string_view op;
};

constexpr std::array<ActivationName, 4> kActivations = {{
    {"silu", Activation::kSilu, "silu"},
    {"gelu_none", Activation::kGeluErf, "gelu"},
    {"gelu_tanh", Activation::kGeluTanh, "gelu"},
    {"relu", Activation::kRelu, "relu"},
}};

const ActivationName* find_activation(std::string_view name) {
  for (const ActivationName& item : kActivations) {
    if (item.name == name) return &item;
  }
  return nullptr;
}

const ActivationName& activation_of(const Attrs& attrs) { return *find_activation(attrs.text("activation")); }

std::vector<Type> infer_fused_gate_up(const InferArgs& args) {
  const Dim rows = require_linear_inputs(args);
  const std::string& name = args.attrs.text("activation");
  if (find_activation(name) == nullptr) {
    args.fail("activation \"" + name + "\": use silu, gelu_none, gelu_tanh or relu");
  }
  if (!rows.is_constant() || rows.constant() % 2 != 0) {
    args.fail("w has " + rows.str() + " rows: expected an even number, gate rows then as many up rows");
  }
  Type out = args.type(0);
  out.shape.back() = Dim(rows.constant() / 2);
  return {out};
}

std::vector<Value*> decompose_fused_gate_up(Builder& b, std::span<Value* const> inputs, const Attrs& attrs) {
  Value* bias = inputs.size() > 2 ? inputs[2] : nullptr;
  const int64_t features = inputs[1]->dim(0).constant() / 2;
  const auto half = [&](int64_t first) {
    Value* part = bias == nullptr ? nullptr : weight_rows(b, bias, first, features);
    return b("linear", {inputs[0], weight_rows(b, inputs[1], first, features), part});
  };
  const ActivationName& activation = activation_of(attrs);
  Value* gate = half(0);
  Attrs options;
  if (activation.op == "gelu") {
    options.set("approximate", std::string(activation.activation == Activation::kGeluTanh ? "tanh" : "none"));
  }
  return {b("mul", {b(activation.op, {gate}, options), half(features)})};
}

}  // namespace

void register_op_fused_gate_up(OpRegistry& registry) {
  OpDef op;
  op.name = "fused_gate_up";
  op.doc = "out = act(x Wg^T + bg) * (x Wu^T + bu), w = [Wg; Wu]. Shazeer 2020, arXiv 2002.05202.";
  op.inputs = {{"x"}, {"w"}, {"bias", true}};
  op.attrs = {{"activation", AttrKind::kText, std::string(), true, "silu, gelu_none, gelu_tanh or relu"}};
  op.fused = true;
  op.infer = infer_fused_gate_up;
  op.flops = linear_flops;
  op.decompose = decompose_fused_gate_up;
  op.make_cpu_kernel = [](const KernelRequest& request) {
    const int64_t features = request.node.output()->shape().back().constant();
    return make_matmul_kernel(request, {{features}, activation_of(request.node.attrs()).activation});
  };
  registry.add(std::move(op));
}

}  // namespace atb
