// SPDX-License-Identifier: Apache-2.0
// fused_linear: a product with a constant weight and what stands around it, without round trips: the norm of its input,
// an activation, a residual.
#include "ops/folded_norm_util.h"
#include "ops/fused_activation_util.h"
#include "ops/linear_util.h"
#include "ops/matmul_kernel.h"

namespace atb {
namespace {

constexpr size_t kNormWeight = 3;
constexpr size_t kResidual = 5;

void require_residual(const InferArgs& args, const std::vector<Type>& types) {
  if (!args.has(kResidual)) return;
  if (types.size() != 1) args.fail("a residual needs one output, not " + std::to_string(types.size()));
  const Type& residual = args.type(kResidual);
  if (residual.dtype == types[0].dtype && equal(residual.shape, types[0].shape) == Tri::kYes) return;
  args.fail("the residual is " + residual.str() + ", the output " + types[0].str() + ": they must be of one type");
}

std::vector<Type> infer_fused_linear(const InferArgs& args) {
  const std::string& activation = args.attrs.text("activation");
  if (!activation_named(activation)) {
    args.fail("activation \"" + activation + "\": use none, silu, gelu_none, gelu_tanh or relu");
  }
  std::vector<Type> types = infer_split_linears(args);
  require_folded_norm(args, kNormWeight);
  require_residual(args, types);
  return types;
}

std::vector<Value*> decompose_fused_linear(Builder& b, std::span<Value* const> inputs, const Attrs& attrs) {
  Value* x = folded_norm(b, inputs, attrs, kNormWeight);
  Value* bias = inputs.size() > 2 ? inputs[2] : nullptr;
  std::vector<Value*> outputs = split_linears(b, x, inputs[1], bias, attrs.get<std::vector<int64_t>>("splits"));
  for (Value*& output : outputs) output = activated(b, attrs.text("activation"), output);
  if (inputs.size() > kResidual) outputs[0] = b("add", {outputs[0], inputs[kResidual]});
  return outputs;
}

MatmulOutputs kernel_outputs(const Node& node) {
  MatmulOutputs outputs;
  outputs.splits = node.attrs().get<std::vector<int64_t>>("splits");
  outputs.activation = *activation_named(node.attrs().text("activation"));
  outputs.norm = folded_norm_operands(node, kNormWeight);
  if (node.input(kResidual) != nullptr) outputs.residual = static_cast<int>(kResidual);
  return outputs;
}

}  // namespace

void register_op_fused_linear(OpRegistry& registry) {
  OpDef op;
  op.name = "fused_linear";
  op.doc =
      "out = act(norm(x) w^T + bias) + residual, one output a split of the rows of w. The norm is an rms_norm or a "
      "layer_norm with norm_weight and, for the latter, norm_bias; a residual needs a single output.";
  op.inputs = {{"x"}, {"w"}, {"bias", true}, {"norm_weight", true}, {"norm_bias", true}, {"residual", true}};
  op.outputs = {{"out", -1, static_cast<int>(kResidual)}};
  op.attrs = folded_norm_attrs();
  op.attrs.push_back({"splits", AttrKind::kInts, std::vector<int64_t>(), true, "features of each output, in order"});
  op.attrs.push_back({"activation", AttrKind::kText, std::string("none"), false,
                      "none, silu, gelu_none, gelu_tanh or relu, of every output"});
  op.fused = true;
  op.infer = infer_fused_linear;
  op.flops = linear_flops;
  op.decompose = decompose_fused_linear;
  op.make_cpu_kernel = [](const KernelRequest& request) {
    return make_matmul_kernel(request, kernel_outputs(request.node));
  };
  registry.add(std::move(op));
}

}  // namespace atb
