// SPDX-License-Identifier: Apache-2.0
// Products with a constant weight (linear, merged_matmul, fused_linear), for patterns that fold their neighbours in.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "passes/engine/matcher.h"
#include "passes/engine/rewriter.h"

namespace atb {

// The inputs and attributes of fused_linear; null for what is not there.
struct FusedLinear {
  // What a product computes.
  explicit FusedLinear(const Node& product);
  Node* build(Rewriter& rewriter) const;

  Value* x;
  Value* weight;
  Value* bias;
  Value* norm_weight;
  Value* norm_bias;
  Value* residual;
  std::vector<int64_t> splits;
  std::string norm = "none";
  double eps = 0;
  std::string activation = "none";
};

// How fused operators name a silu, relu or gelu: silu, relu, gelu_none, gelu_tanh.
std::string activation_name(const Node& activation);

// The pattern node "product": one of these operators on x, with a constant weight.
PatternId product(Pattern& p, std::vector<std::string> ops, PatternId x);
// The pattern node "norm" of any "x", with constant vectors "norm weight" and "norm bias"; it is to be x of "product",
// which is what require_norm_folds() adds constraints for.
PatternId norm_to_fold(Pattern& p);
void require_norm_folds(Pattern& p);
// "rms" or "layer", for the attribute norm.
std::string norm_kind(const Node& norm);

// Constraints on "product".
void require_one_output(Pattern& p);
void require_no_activation(Pattern& p);
void require_no_residual(Pattern& p);

}  // namespace atb
