// SPDX-License-Identifier: Apache-2.0
// fused_add_norm: a residual add and the norm that reads its sum, in one pass over each row.
#include "ir/builder.h"
#include "ops/norm_util.h"

namespace atb {
namespace {

std::vector<Type> infer_fused_add_norm(const InferArgs& args) {
  const std::string& kind = args.attrs.text("kind");
  if (kind != "rms" && kind != "layer") args.fail("kind \"" + kind + "\": use rms or layer");
  if (kind == "rms" && args.has(3)) args.fail("an rms norm has no bias");
  require_float(args, 0);
  if (equal(args.type(0).shape, args.type(1).shape) != Tri::kYes) {
    args.fail("residual " + args.type(0).str() + " and x " + args.type(1).str() + " differ in shape");
  }
  require_norm_inputs(args, 1, 2, 3);
  const Type sum{args.type(0).dtype, args.type(0).shape};
  return {sum, sum};
}

std::vector<Value*> decompose_fused_add_norm(Builder& b, std::span<Value* const> inputs, const Attrs& attrs) {
  Value* sum = b("add", {inputs[0], inputs[1]});
  const Attrs eps{{"eps", attrs.real("eps")}};
  if (attrs.text("kind") == "rms") return {b("rms_norm", {sum, inputs[2]}, eps), sum};
  return {b("layer_norm", {sum, inputs[2], inputs.size() > 3 ? inputs[3] : nullptr}, eps), sum};
}

}  // namespace

void register_op_fused_add_norm(OpRegistry& registry) {
  OpDef op;
  op.name = "fused_add_norm";
  op.doc = "sum = residual + x; normed = norm(sum), an rms_norm or layer_norm with weight w and, for the latter, bias.";
  op.inputs = {{"residual"}, {"x"}, {"w"}, {"bias", true}};
  op.outputs = {{"normed"}, {"sum", -1, 0}};
  op.attrs = {{"eps", AttrKind::kReal, 0.0, true, "eps of the norm"},
              {"kind", AttrKind::kText, std::string(), true, "rms or layer"}};
  op.fused = true;
  op.infer = infer_fused_add_norm;
  op.flops = [](const Node& node) { return Dim(8) * num_elements(node.output()->shape()); };
  op.decompose = decompose_fused_add_norm;
  op.make_cpu_kernel = [](const KernelRequest& request) {
    const bool layer = request.node.attrs().text("kind") == "layer";
    return make_norm_kernel(request, {.x = 1, .weight = 2, .bias = 3, .residual = 0, .layer = layer});
  };
  registry.add(std::move(op));
}

}  // namespace atb
