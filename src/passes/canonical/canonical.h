// SPDX-License-Identifier: Apache-2.0
// Canonical form: one spelling of what graphs spell in many ways, so that each fusion pattern is written once.
#pragma once

#include "ir/graph.h"
#include "passes/engine/rewriter.h"

namespace atb {

// A normal form looks at one node; if it applies, it builds the replacement through the rewriter and returns true. It
// is exact mathematics: results are the same up to rounding, and the same bits unless its comment says otherwise. The
// list of all, with the operators that each looks at, is in canonicalize.cc.

// --- Constants and scalars

// What depends on constants alone, where that is a scalar or a vector: 1 + w.
bool constant_vector(const Node& node, Rewriter& rewriter);
// add(c, x) -> add(x, c), mul(c, x) -> mul(x, c) for a constant c and a computed x.
bool constants_right(const Node& node, Rewriter& rewriter);
// div(x, c) -> mul(x, 1 / c) for a one-element constant c whose reciprocal is exact (a power of two).
bool scale_by_mul(const Node& node, Rewriter& rewriter);
// mul(mul(x, a), b) -> mul(x, a * b) for one-element constants; rounds once less.
bool scale_of_scale(const Node& node, Rewriter& rewriter);
// matmul(mul(q, c), k) -> mul(matmul(q, k), c) for a one-element constant c, through views; rounds elsewhere.
bool scale_on_scores(const Node& node, Rewriter& rewriter);

// --- What changes nothing

// x * 1, x / 1, x + 0, x - 0 -> x (+0 where x is -0 and 0 was added).
bool neutral_operand(const Node& node, Rewriter& rewriter);
// x and true, x or false, x and x, not not x -> x.
bool neutral_bool(const Node& node, Rewriter& rewriter);
// A cast to x's own type -> x; a cast of a cast that loses nothing -> one cast.
bool needless_cast(const Node& node, Rewriter& rewriter);

// --- Views and pieces

// reshape(reshape(x)) -> reshape(x).
bool reshape_of_reshape(const Node& node, Rewriter& rewriter);
// transpose(transpose(x)) -> transpose(x) by the combined permutation.
bool transpose_of_transpose(const Node& node, Rewriter& rewriter);
// A reshape to the same shape, a transpose that moves nothing (extents of 1 may change places): x.
bool identity_view(const Node& node, Rewriter& rewriter);
// linear, rms_norm and layer_norm of a view of whole rows -> the view of their result.
bool view_below_rows(const Node& node, Rewriter& rewriter);
// The same for reshapes and elementwise operators, whose other operands are alike, scalars, or vectors of the last
// axis.
bool view_below_elements(const Node& node, Rewriter& rewriter);
// A slice of everything -> x.
bool whole_slice(const Node& node, Rewriter& rewriter);
// take(x, [b, ..., e]) by a constant list, or counted by an iota -> x[b : e + 1].
bool take_of_range(const Node& node, Rewriter& rewriter);
// A slice that lies in one operand of a concat -> a slice of that operand.
bool slice_of_concat(const Node& node, Rewriter& rewriter);
// concat of neighbouring slices of one value -> one slice; of one operand -> that; empty operands go.
bool concat_of_slices(const Node& node, Rewriter& rewriter);
// A broadcast to x's own shape -> x; a broadcast of a broadcast -> one.
bool needless_broadcast(const Node& node, Rewriter& rewriter);
// An elementwise operator reads what was broadcast for it, where it broadcasts to the same result itself.
bool broadcast_operand(const Node& node, Rewriter& rewriter);

// --- Powers and reductions

// pow(x, c) -> x, x * x, x * x * x, sqrt, rsqrt, reciprocal for c = 1, 2, 3, 1/2, -1/2, -1.
bool power_by_name(const Node& node, Rewriter& rewriter);
// 1 / x -> reciprocal(x); reciprocal(sqrt(x)), sqrt(reciprocal(x)) -> rsqrt(x).
bool reciprocal_by_name(const Node& node, Rewriter& rewriter);
// x / sqrt(y) -> x * rsqrt(y) for one y a row; rounds elsewhere.
bool division_by_root(const Node& node, Rewriter& rewriter);
// sum(x) / n -> mean(x) for the number n of elements summed.
bool mean_of_sum(const Node& node, Rewriter& rewriter);
// A reduction without its axes, reshaped to have them -> a reduction that keeps them.
bool kept_axes(const Node& node, Rewriter& rewriter);

// --- Operators raised from their chains; rounding differs

// x * rsqrt(mean(x^2) + eps) over the last axis -> rms_norm(x, ones).
bool rms_norm_chain(const Node& node, Rewriter& rewriter);
// rms_norm(x - mean(x), w) -> layer_norm(x, w).
bool layer_norm_chain(const Node& node, Rewriter& rewriter);
// A norm without a weight, times a constant vector of the last axis -> the norm with that weight.
bool norm_weight(const Node& node, Rewriter& rewriter);
// A layer_norm without a bias, plus a constant vector of the last axis -> the norm with that bias.
bool norm_bias(const Node& node, Rewriter& rewriter);
// 0 - x, x * -1 -> neg(x); neg(neg(x)) -> x.
bool negation(const Node& node, Rewriter& rewriter);
// 1 / (1 + exp(-x)) -> sigmoid(x); y / (1 + exp(-x)) -> y * sigmoid(x).
bool sigmoid_chain(const Node& node, Rewriter& rewriter);
// x * sigmoid(x) -> silu(x).
bool silu_chain(const Node& node, Rewriter& rewriter);
// maximum(x, 0) -> relu(x).
bool relu_chain(const Node& node, Rewriter& rewriter);
// x / 2 * (1 + erf(..)), x / 2 * (1 + tanh(..)) -> gelu(x), each of its own kind.
bool gelu_chain(const Node& node, Rewriter& rewriter);
// softmax(where(c, x, fill)) -> softmax(add(x, where(c, 0, fill))), with the branches the other way round, through
// several fills, and beside a mask m that is added to x already: add(x, where(c, m, fill)). For -inf and any fill of
// kHidden or less (passes/analysis/forms.h says what that supposes); finite ones become so low that rows of hidden keys
// alone stay uniform, which f16 has no number for. Where x is +inf or NaN under the mask, the sum is NaN.
bool masked_fill(const Node& node, Rewriter& rewriter);
// c * where(.., x, fill) -> where(.., c * x, c * fill); c * (x + m) -> c * x + c * m for a mask m: scale first, as SDPA
// does. For c > 0 that leaves hidden what is.
bool scale_below_mask(const Node& node, Rewriter& rewriter);
// softmax(scores - m) -> softmax(scores + neg(m)) where that is a mask.
bool subtracted_mask(const Node& node, Rewriter& rewriter);

// --- Positions and attention

// Integers affine in one index -> iota, times and plus a constant, cast, reshaped, broadcast: each only where needed.
bool affine_positions(const Node& node, Rewriter& rewriter);
// Rotations of features by position, in any spelling -> rotary with rotary_table. Angles are the same products in f32.
bool raise_rotary(const Node& node, Rewriter& rewriter);
// table[0:n] -> embedding(iota(n), table) for a constant matrix and a number of rows that is known at run time.
bool leading_rows(const Node& node, Rewriter& rewriter);
// embedding(broadcast(ids), table) -> broadcast(embedding(ids, table)).
bool embedding_of_broadcast(const Node& node, Rewriter& rewriter);
// embedding(cast(i32 ids), table) -> embedding(ids, table), through a view.
bool embedding_of_widened(const Node& node, Rewriter& rewriter);
// matmul(x, transpose(y)) -> matmul(x, y) {transpose_b} where the last two axes of a computed y change places.
bool matmul_of_transpose(const Node& node, Rewriter& rewriter);

// --- Linear layers

// matmul(x, W) -> linear(x, W^T) for a constant matrix W, seen through transposes and casts to f32.
bool linear_of_matmul(const Node& node, Rewriter& rewriter);
// linear(x, transpose(W)) -> linear(x, W^T) for a constant W.
bool constant_weight(const Node& node, Rewriter& rewriter);
// add(linear(x, w), b) -> linear(x, w, b) for a constant vector b; rounds elsewhere.
bool linear_bias(const Node& node, Rewriter& rewriter);

// --- Tried when those above have settled, and with them

// slice(linear(x, w)), slice(reshape(linear(x, w))) -> a linear of those rows, where nothing reads the whole.
bool linear_part(const Node& node, Rewriter& rewriter);
// slice(transpose(x)) -> transpose(slice(x)).
bool slice_above_transpose(const Node& node, Rewriter& rewriter);

// Applies all normal forms to a fixed point. Returns the number of rewrites.
int64_t canonicalize(Graph& graph);

}  // namespace atb
