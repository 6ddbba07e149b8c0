// SPDX-License-Identifier: Apache-2.0
// Normal forms of linear layers: a product with a constant matrix is a linear, a constant vector added to it its bias.
#include <algorithm>

#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"

namespace atb {
namespace {

const std::vector<int64_t> kSwap = {1, 0};

// A constant matrix seen through casts that lose nothing and through transposes.
struct Matrix {
  ConstantRef constant;
  bool transposed = false;
};
std::optional<Matrix> constant_matrix(const Value* value) {
  bool transposed = false;
  while (value != nullptr && value->rank() == 2) {
    if (value->is_constant()) {
      if (!is_float(value->type().dtype)) return std::nullopt;
      return Matrix{value->constant(), transposed};
    }
    const Node* node = value->producer();
    if (node == nullptr) return std::nullopt;
    if (node->is("transpose") && node->attrs().get<std::vector<int64_t>>("perm") == kSwap) {
      transposed = !transposed;
    } else if (!node->is("cast") || value->type().dtype != DType::kF32 || node->input(0)->type().dtype == DType::kF64) {
      return std::nullopt;
    }
    value = node->input(0);
  }
  return std::nullopt;
}

// Weight of a linear, [N, K], for a matrix used as [K, N] (`by_columns`) or as [N, K].
Value* linear_weight(const Matrix& matrix, bool by_columns, Rewriter& rewriter) {
  const bool turn = matrix.transposed != by_columns;
  if (turn && matrix.constant->encoding() != nullptr) return nullptr;
  return rewriter.constant(turn ? Constant::transpose(matrix.constant) : matrix.constant);
}

}  // namespace

bool linear_of_matmul(const Node& node, Rewriter& rewriter) {
  const std::optional<Matrix> matrix = constant_matrix(node.input(1));
  if (!matrix || node.input(0)->is_constant()) return false;
  Value* weight = linear_weight(*matrix, !node.attrs().flag("transpose_b"), rewriter);
  if (weight == nullptr) return false;
  return pass_through(node, rewriter.value("linear", {node.input(0), weight}), rewriter);
}

bool constant_weight(const Node& node, Rewriter& rewriter) {
  if (node.input(1)->is_constant()) return false;
  const std::optional<Matrix> matrix = constant_matrix(node.input(1));
  Value* weight = matrix ? linear_weight(*matrix, false, rewriter) : nullptr;
  if (weight == nullptr) return false;
  std::vector<Value*> inputs = node.inputs();
  inputs[1] = weight;
  return pass_through(node, rewriter.value("linear", inputs), rewriter);
}

bool linear_bias(const Node& node, Rewriter& rewriter) {
  for (const size_t at : {0u, 1u}) {
    const Node* linear = made_by(node.input(at), "linear");
    if (linear == nullptr || linear->input(2) != nullptr || !read_once(linear->output())) continue;
    const Value* out = node.output();
    const ConstantRef bias = vector_constant(node.input(1 - at), linear->output()->dim(-1), out->rank());
    if (bias == nullptr) continue;
    return pass_through(node, rewriter.value("linear", {linear->input(0), linear->input(1), rewriter.constant(bias)}),
                        rewriter);
  }
  return false;
}

}  // namespace atb
