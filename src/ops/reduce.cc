// SPDX-License-Identifier: Apache-2.0
// sum, mean, max: over any axes.
#include <algorithm>
#include <limits>

#include "ops/binary_math_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reduce_kernel.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

// Which axes of input 0 are reduced. No axes mean all.
std::vector<bool> reduced_axes(const InferArgs& args) {
  const int rank = args.inputs[0]->rank();
  const auto& axes = args.attrs.get<std::vector<int64_t>>("axes");
  std::vector<bool> reduced(static_cast<size_t>(rank), axes.empty());
  for (const int64_t given : axes) {
    const size_t axis = require_axis(args, given, rank);
    if (reduced[axis]) args.fail("axis " + std::to_string(given) + " is given twice");
    reduced[axis] = true;
  }
  return reduced;
}

std::vector<Type> infer_reduction(const InferArgs& args) {
  require_no_state(args);
  const Type& x = args.type(0);
  if (args.op.name == "mean") require_float(args, 0);
  const std::vector<bool> reduced = reduced_axes(args);
  const bool keep = args.attrs.flag("keep");
  Shape shape;
  for (size_t axis = 0; axis < reduced.size(); ++axis) {
    if (!reduced[axis]) {
      shape.push_back(x.shape[axis]);
      continue;
    }
    if (keep) shape.push_back(Dim(1));
    if (args.op.name != "sum" && x.shape[axis].upper() == 0) args.fail("axis " + std::to_string(axis) + " is empty");
  }
  const bool counts = args.op.name == "sum" && !is_float(x.dtype);
  return {{counts ? DType::kI64 : x.dtype, std::move(shape)}};
}

// Shape of x with 1 where it is reduced.
template <class T>
std::vector<int64_t> kept_shape(const RefCall<T>& call) {
  const auto& axes = call.node.attrs().template get<std::vector<int64_t>>("axes");
  std::vector<int64_t> shape = call.inputs[0]->shape;
  if (axes.empty()) return std::vector<int64_t>(shape.size(), 1);
  for (const int64_t axis : axes) shape[axis_index(axis, shape.size())] = 1;
  return shape;
}

template <class T>
void sum_reference(RefCall<T>& call, bool mean) {
  const RefTensor<T>& x = *call.inputs[0];
  RefTensor<T>& out = *call.outputs[0];
  for_each_broadcast<1>(x.shape, {kept_shape(call)}, [&](size_t i, const std::array<int64_t, 1>& at) {
    const auto o = static_cast<size_t>(at[0]);
    if (is_float(x.dtype)) {
      out.f[o] += x.f[i];
    } else {
      out.i[o] = static_cast<int64_t>(static_cast<uint64_t>(out.i[o]) + static_cast<uint64_t>(x.i[i]));
    }
  });
  if (!mean) return;
  const T count = static_cast<T>(x.size()) / static_cast<T>(std::max<int64_t>(out.size(), 1));
  for (T& value : out.f) value /= count;
}

template <class T>
void max_reference(RefCall<T>& call) {
  const RefTensor<T>& x = *call.inputs[0];
  RefTensor<T>& out = *call.outputs[0];
  std::fill(out.f.begin(), out.f.end(), -std::numeric_limits<T>::infinity());
  std::fill(out.i.begin(), out.i.end(), lowest_integer(x.dtype));
  for_each_broadcast<1>(x.shape, {kept_shape(call)}, [&](size_t i, const std::array<int64_t, 1>& at) {
    const auto o = static_cast<size_t>(at[0]);
    if (is_float(x.dtype)) {
      out.f[o] = larger(out.f[o], x.f[i]);
    } else {
      out.i[o] = std::max(out.i[o], x.i[i]);
    }
  });
}

void register_reduction(OpRegistry& registry, Reduction reduction, std::string name, std::string doc,
                        ReferenceKernel reference) {
  OpDef op;
  op.name = std::move(name);
  op.doc = std::move(doc);
  op.inputs = {{"x"}};
  op.attrs = {{"axes", AttrKind::kInts, std::vector<int64_t>{}, false, "may count from the end; none means all"},
              {"keep", AttrKind::kBool, false, false, "reduced axes stay, with extent 1"}};
  op.infer = infer_reduction;
  op.flops = [](const Node& node) { return num_elements(node.input(0)->shape()); };
  op.reference = std::move(reference);
  op.make_cpu_kernel = [reduction](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    return plain_operands(request.node) ? make_reduce_kernel(request.node, reduction) : nullptr;
  };
  registry.add(std::move(op));
}

}  // namespace

void register_op_reduce(OpRegistry& registry) {
  register_reduction(registry, Reduction::kSum, "sum", "out = the sum of x over `axes`; of integers and bools in i64.",
                     reference_kernel([](auto& call) { sum_reference(call, false); }));
  register_reduction(registry, Reduction::kMean, "mean", "out = the mean of x over `axes`.",
                     reference_kernel([](auto& call) { sum_reference(call, true); }));
  register_reduction(registry, Reduction::kMax, "max",
                     "out = the largest of x over `axes`, NaN if one is; of bools whether any is true.",
                     reference_kernel([](auto& call) { max_reference(call); }));
}

}  // namespace atb
