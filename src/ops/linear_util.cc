// SPDX-License-Identifier: Apache-2.0
// What the products with a weight share.
#include "ops/linear_util.h"

#include <numeric>
#include <utility>

namespace atb {

Dim require_linear_inputs(const InferArgs& args) {
  require_float(args, 0);
  require_float(args, 1);
  require_min_rank(args, 0, 1);
  require_rank(args, 1, 2);
  const Shape& w = args.type(1).shape;
  require_equal(args, args.type(0).shape.back(), w[1], "K of x and w");
  if (args.has(2)) require_vector(args, 2, w[0], "the bias and the rows of w");
  return w[0];
}

Dim linear_flops(const Node& node) { return Dim(2) * num_elements(node.input(0)->shape()) * node.input(1)->dim(0); }

Value* weight_rows(Builder& b, Value* weight, int64_t first, int64_t count) {
  std::vector<int32_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), static_cast<int32_t>(first));
  if (weight->is_constant()) return b.constant(Constant::permute_rows(weight->constant(), std::move(rows)));
  Value* index = b.constant(Constant::from_i32("rows", {count}, rows));
  if (weight->rank() == 2) return b("gather_rows", {weight, index});
  Value* column = b.reshape(weight, {weight->dim(0), Dim(1)});
  return b.reshape(b("gather_rows", {column, index}), {Dim(count)});
}

std::vector<Type> infer_split_linears(const InferArgs& args) {
  const Dim features = require_linear_inputs(args);
  const auto& splits = args.attrs.get<std::vector<int64_t>>("splits");
  std::vector<Type> types;
  Dim total(0);
  for (const int64_t split : splits) {
    if (split < 1) args.fail("splits must be positive, not " + std::to_string(split));
    total = total + Dim(split);
    types.push_back(args.type(0));
    types.back().shape.back() = Dim(split);
  }
  if (types.empty()) args.fail("splits is empty: give the features of each output");
  require_equal(args, total, features, "the sum of splits and the rows of w");
  return types;
}

std::vector<Value*> split_linears(Builder& b, Value* x, Value* weight, Value* bias,
                                  const std::vector<int64_t>& splits) {
  if (splits.size() == 1) return {b("linear", {x, weight, bias})};
  std::vector<Value*> outputs;
  int64_t row = 0;
  for (const int64_t split : splits) {
    Value* part = bias == nullptr ? nullptr : weight_rows(b, bias, row, split);
    outputs.push_back(b("linear", {x, weight_rows(b, weight, row, split), part}));
    row += split;
  }
  return outputs;
}

}  // namespace atb
