// SPDX-License-Identifier: Apache-2.0
// reshape: the same elements in the same order under another shape.
#include "ops/infer_util.h"

namespace atb {
namespace {

std::vector<Type> infer_reshape(const InferArgs& args) {
  const Shape& shape = args.attrs.get<Shape>("shape");
  if (equal(num_elements(args.type(0).shape), num_elements(shape)) != Tri::kYes) {
    args.fail("x " + to_string(args.type(0).shape) + " and shape " + to_string(shape) +
              " are not proven to have equally many elements");
  }
  return {{args.type(0).dtype, shape}};
}

}  // namespace

void register_op_reshape(OpRegistry& registry) {
  OpDef op;
  op.name = "reshape";
  op.doc = "Row-major elements of x under `shape`; a view. The numbers of elements must be proven equal.";
  op.inputs = {{"x"}};
  op.outputs = {{"out", 0}};
  op.attrs = {{"shape", AttrKind::kShape, Shape{}, true, "extents of the result"}};
  op.infer = infer_reshape;
  op.reference = reference_kernel([](auto& call) {
    call.outputs[0]->f = call.inputs[0]->f;
    call.outputs[0]->i = call.inputs[0]->i;
  });
  registry.add(std::move(op));
}

}  // namespace atb
