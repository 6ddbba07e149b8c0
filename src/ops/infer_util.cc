// SPDX-License-Identifier: Apache-2.0
// Helpers of shape rules.
#include "ops/infer_util.h"

#include <algorithm>
#include <string>

namespace atb {
namespace {

std::string input_label(const InferArgs& args, size_t input) {
  const size_t last = args.op.inputs.size() - 1;
  return args.op.inputs[std::min(input, last)].name + " (%" + args.inputs[input]->name() + ": " +
         args.type(input).str() + ")";
}

// Of two integer dtypes the result has that of the higher rank.
int integer_rank(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return 0;
    case DType::kU8:
    case DType::kI8:
      return 1;
    case DType::kI32:
      return 2;
    default:
      return 3;
  }
}

Dim broadcast_extent(const InferArgs& args, const Dim& a, const Dim& b) {
  if (a == Dim(1)) return b;
  if (b == Dim(1) || equal(a, b) == Tri::kYes) return a;
  args.fail("extents " + a.str() + " and " + b.str() + " do not broadcast");
}

}  // namespace

Shape broadcast_shape(const InferArgs& args, const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  const size_t shift = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    result[shift + i] = broadcast_extent(args, longer[shift + i], shorter[i]);
  }
  return result;
}

void require_rank(const InferArgs& args, size_t input, int rank) {
  if (args.inputs[input]->rank() != rank)
    args.fail(input_label(args, input) + " must have rank " + std::to_string(rank));
}

void require_min_rank(const InferArgs& args, size_t input, int rank) {
  if (args.inputs[input]->rank() < rank) {
    args.fail(input_label(args, input) + " must have rank " + std::to_string(rank) + " or more");
  }
}

void require_float(const InferArgs& args, size_t input) {
  if (!is_float(args.type(input).dtype)) args.fail(input_label(args, input) + " must be a float tensor");
}

void require_integer(const InferArgs& args, size_t input) {
  const DType dtype = args.type(input).dtype;
  if (dtype != DType::kI32 && dtype != DType::kI64) args.fail(input_label(args, input) + " must be i32 or i64");
}

void require_equal(const InferArgs& args, const Dim& a, const Dim& b, const char* what) {
  if (equal(a, b) != Tri::kYes) args.fail(std::string(what) + " differ: " + a.str() + " and " + b.str());
}

void require_vector(const InferArgs& args, size_t input, const Dim& extent, const char* what) {
  require_float(args, input);
  require_rank(args, input, 1);
  require_equal(args, args.type(input).shape[0], extent, what);
}

DType result_dtype(const InferArgs& args) {
  for (const Value* input : args.inputs) {
    if (input != nullptr && is_float(input->type().dtype)) return input->type().dtype;
  }
  DType widest = args.type(0).dtype;
  for (const Value* input : args.inputs) {
    if (input != nullptr && integer_rank(input->type().dtype) > integer_rank(widest)) widest = input->type().dtype;
  }
  return widest;
}

void require_no_state(const InferArgs& args) {
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    if (args.has(i) && args.type(i).dtype == DType::kState) args.fail(input_label(args, i) + " is a state, no tensor");
  }
}

void require_same_kind(const InferArgs& args, size_t a, size_t b) {
  if (is_float(args.type(a).dtype) != is_float(args.type(b).dtype)) {
    args.fail(input_label(args, a) + " and " + input_label(args, b) + " differ in kind: cast one of them");
  }
}

void require_bool(const InferArgs& args, size_t input) {
  if (args.type(input).dtype != DType::kBool) args.fail(input_label(args, input) + " must be bool");
}

size_t require_axis(const InferArgs& args, int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    args.fail("axis " + std::to_string(axis) + " is not in [" + std::to_string(-rank) + ", " + std::to_string(rank) +
              ") of " + input_label(args, 0));
  }
  return axis_index(axis, static_cast<size_t>(rank));
}

Shape leading(const Shape& shape, size_t count) {
  return Shape(shape.begin(), shape.end() - static_cast<std::ptrdiff_t>(std::min(count, shape.size())));
}

}  // namespace atb
