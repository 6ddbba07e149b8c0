// SPDX-License-Identifier: Apache-2.0
// rotary_embedding: rotary position embedding of queries and keys at once.
#include "ir/builder.h"
#include "ops/attention_util.h"
#include "ops/rotary_kernel.h"

namespace atb {
namespace {

std::vector<Type> infer_rotary_embedding(const InferArgs& args) {
  require_rotary_tables(args, 0, 2);
  require_rotary_tables(args, 1, 2);
  return {args.type(0), args.type(1)};
}

std::vector<Value*> decompose_rotary_embedding(Builder& b, std::span<Value* const> inputs, const Attrs& attrs) {
  const Attrs layout{{"interleaved", attrs.flag("interleaved")}};
  return {b("rotary", {inputs[0], inputs[2], inputs[3]}, layout),
          b("rotary", {inputs[1], inputs[2], inputs[3]}, layout)};
}

}  // namespace

void register_op_rotary_embedding(OpRegistry& registry) {
  OpDef op;
  op.name = "rotary_embedding";
  op.doc = "(rotary(q, cos, sin), rotary(k, cos, sin)) for q [..., T, Hq, D] and k [..., T, Hk, D].";
  op.inputs = {{"q"}, {"k"}, {"cos"}, {"sin"}};
  op.outputs = {{"q", -1, 0}, {"k", -1, 1}};
  op.attrs = {{"interleaved", AttrKind::kBool, false, false, "pairs are neighbours (2i, 2i + 1)"}};
  op.fused = true;
  op.infer = infer_rotary_embedding;
  op.flops = [](const Node& node) {
    return Dim(3) * (num_elements(node.output(0)->shape()) + num_elements(node.output(1)->shape()));
  };
  op.decompose = decompose_rotary_embedding;
  op.make_cpu_kernel = [](const KernelRequest& request) { return make_rotary_kernel(request, 2); };
  registry.add(std::move(op));
}

}  // namespace atb
