// SPDX-License-Identifier: Apache-2.0
// silu, relu, gelu: elementwise activations.
#include "ops/activation_util.h"

#include "ops/elementwise_util.h"
#include "ops/infer_util.h"

namespace atb {
namespace {

std::vector<Type> infer_activation(const InferArgs& args) {
  require_float(args, 0);
  if (args.attrs.has("approximate")) {
    const std::string& approximate = args.attrs.text("approximate");
    if (approximate != "none" && approximate != "tanh") {
      args.fail("approximate \"" + approximate + "\": use none or tanh");
    }
  }
  return {{args.type(0).dtype, args.type(0).shape}};
}

bool uses_tanh(const Attrs& attrs) { return attrs.has("approximate") && attrs.text("approximate") == "tanh"; }

// `function` is called as function(x, uses_tanh).
template <class Function>
ReferenceKernel activation_reference(Function function) {
  return reference_kernel([function](auto& call) {
    const auto& x = call.inputs[0]->f;
    const bool tanh = uses_tanh(call.node.attrs());
    for (size_t i = 0; i < x.size(); ++i) call.outputs[0]->f[i] = function(x[i], tanh);
  });
}

// The kernel of f32, given the attributes.
using MakeKernel = std::unique_ptr<Kernel> (*)(const Attrs& attrs);

template <class Function>
void register_activation(OpRegistry& registry, std::string name, std::string doc, std::vector<AttrSpec> attrs,
                         Function function, MakeKernel make) {
  OpDef op;
  op.name = name;
  op.doc = std::move(doc);
  op.inputs = {{"x"}};
  op.outputs = {{"out", -1, 0}};
  op.attrs = std::move(attrs);
  op.infer = infer_activation;
  op.flops = [](const Node& node) { return Dim(4) * num_elements(node.output()->shape()); };
  op.reference = activation_reference(function);
  op.make_cpu_kernel = [make](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    if (request.node.input(0)->type().dtype != DType::kF32) return nullptr;
    return make(request.node.attrs());
  };
  registry.add(std::move(op));
}

}  // namespace

void register_op_activation(OpRegistry& registry) {
  register_activation(
      registry, "silu", "out = x / (1 + exp(-x)).", {}, [](auto x, bool) { return silu(x); },
      [](const Attrs&) { return make_pointwise_kernel("silu", kernels::Pointwise::kSilu); });
  register_activation(
      registry, "relu", "out = max(x, 0).", {}, [](auto x, bool) { return relu(x); },
      [](const Attrs&) { return make_unary_kernel<float, float>("relu_f32", relu<float>); });
  register_activation(
      registry, "gelu",
      "out = x * Phi(x) with approximate = none (by erf); with tanh: x / 2 * (1 + tanh(sqrt(2 / pi) * "
      "(x + 0.044715 x^3))). Hendrycks and Gimpel 2016, arXiv 1606.08415.",
      {{"approximate", AttrKind::kText, std::string("none"), false, "none or tanh"}},
      [](auto x, bool tanh) { return tanh ? gelu_tanh(x) : gelu_erf(x); },
      [](const Attrs& attrs) {
        return uses_tanh(attrs) ? make_pointwise_kernel("gelu_tanh", kernels::Pointwise::kGeluTanh)
                                : make_pointwise_kernel("gelu_erf", kernels::Pointwise::kGeluErf);
      });
}

}  // namespace atb
