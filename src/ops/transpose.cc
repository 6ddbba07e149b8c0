// SPDX-License-Identifier: Apache-2.0
// transpose: permutes the axes.
#include "ops/infer_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_transpose(const InferArgs& args) {
  const auto& perm = args.attrs.get<std::vector<int64_t>>("perm");
  const Shape& from = args.type(0).shape;
  if (perm.size() != from.size()) {
    args.fail("perm has " + std::to_string(perm.size()) + " axes, x has rank " + std::to_string(from.size()));
  }
  std::vector<bool> seen(perm.size(), false);
  Shape shape;
  for (const int64_t axis : perm) {
    const bool valid = axis >= 0 && axis < static_cast<int64_t>(perm.size()) && !seen[static_cast<size_t>(axis)];
    if (!valid) args.fail("perm is no permutation: axis " + std::to_string(axis));
    seen[static_cast<size_t>(axis)] = true;
    shape.push_back(from[static_cast<size_t>(axis)]);
  }
  return {{args.type(0).dtype, std::move(shape)}};
}

// Reads x with permuted strides.
template <class Element>
void permute(const std::vector<Element>& x, const std::vector<int64_t>& x_shape, const std::vector<int64_t>& perm,
             std::vector<Element>& out) {
  const size_t rank = perm.size();
  std::vector<int64_t> dense(rank, 1);
  for (size_t i = rank; i-- > 1;) dense[i - 1] = dense[i] * x_shape[i];
  std::vector<int64_t> index(rank, 0);
  for (Element& value : out) {
    int64_t at = 0;
    for (size_t i = 0; i < rank; ++i) at += index[i] * dense[static_cast<size_t>(perm[i])];
    value = x[static_cast<size_t>(at)];
    for (size_t i = rank; i-- > 0;) {
      if (++index[i] < x_shape[static_cast<size_t>(perm[i])]) break;
      index[i] = 0;
    }
  }
}

}  // namespace

void register_op_transpose(OpRegistry& registry) {
  OpDef op;
  op.name = "transpose";
  op.doc = "out.shape[i] = x.shape[perm[i]]; a view.";
  op.inputs = {{"x"}};
  op.outputs = {{"out", 0}};
  op.attrs = {{"perm", AttrKind::kInts, std::vector<int64_t>{}, true, "axis of x that becomes axis i"}};
  op.infer = infer_transpose;
  op.reference = reference_kernel([](auto& call) {
    const auto& perm = call.node.attrs().template get<std::vector<int64_t>>("perm");
    permute(call.inputs[0]->f, call.inputs[0]->shape, perm, call.outputs[0]->f);
    permute(call.inputs[0]->i, call.inputs[0]->shape, perm, call.outputs[0]->i);
  });
  registry.add(std::move(op));
}

}  // namespace atb
