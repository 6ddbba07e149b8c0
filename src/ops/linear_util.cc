// SPDX-License-Identifier: Apache-2.0
// What linear, merged_matmul and fused_gate_up share.
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

}  // namespace atb
