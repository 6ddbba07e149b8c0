// SPDX-License-Identifier: Apache-2.0
// Reading chains of plain operators: what normal forms ask of values and nodes.
#pragma once

#include <optional>
#include <string_view>

#include "ir/graph.h"
#include "passes/engine/rewriter.h"

namespace atb {

// The node that makes `value`, if it is one of that operator; else null.
const Node* made_by(const Value* value, std::string_view op);

// One reader, and no graph output: what is built from it may take its place.
bool read_once(const Value* value);

// An elementwise node of a value and a one-element constant, of the value's own type: x * 0.5, 1 / x, x + eps.
struct WithScalar {
  Value* x;
  double scalar;
  bool scalar_first;
};
std::optional<WithScalar> with_scalar(const Node& node);

// x and c of a value x * c or x / (1 / c), c a one-element constant.
struct Scaled {
  Value* x;
  double factor;
};
std::optional<Scaled> scaled_by_scalar(const Value* value);

// A reduction (mean, sum, max) of the last axis alone.
bool over_last_axis(const Node& reduction);

// `value` as a vector constant [width], if it is a float constant with `width` elements on its last axis and extents of
// 1 before, of no higher rank than `rank`. New handles are made for those of rank 2 and more. Else null.
ConstantRef vector_constant(const Value* value, const Dim& width, int rank);

// f32 [width] of ones: the same handle while one is alive.
ConstantRef ones(int64_t width);

// Replaces the node's only output by `x`. False where that cannot be: another type, or a graph output that would become
// an input or a constant and lose its name.
bool pass_through(const Node& node, Value* x, Rewriter& rewriter);

// The positive number that a literal of the source stood for: the shortest decimal that rounds to the same f32.
double literal(double rounded_to_f32);

}  // namespace atb
