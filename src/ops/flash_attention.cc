// SPDX-License-Identifier: Apache-2.0
// flash_attention: softmax(q K^T * scale + mask) V without a cache.
#include <limits>

#include "ir/builder.h"
#include "ops/attention_util.h"
#include "ops/flash_attention_kernel.h"
#include "ops/infer_util.h"

namespace atb {
namespace {

std::vector<Type> infer_flash_attention(const InferArgs& args) {
  require_qkv(args, false);
  require_softcap(args);
  if (args.attrs.integer("window") < 0) args.fail("window must be 0 (none) or the number of visible keys");
  const Shape& q = args.type(0).shape;
  if (args.has(3)) require_scores_mask(args, 3, {q[0], q[2], q[1], args.type(1).shape[1]});
  return {args.type(0)};
}

// [T, 1] positions of the queries among the keys, minus `back`.
Value* query_positions(Builder& b, const Dim& tokens, const Dim& keys, int64_t back) {
  Value* rows = b.reshape(b("iota", {}, {{"shape", Shape{tokens}}}), {tokens, Dim(1)});
  const Dim offset = keys - tokens - Dim(back);
  if (offset == Dim(0)) return rows;
  require(offset.is_constant(), Code::kUnsupported,
          "[flash_attention] a causal decomposition needs a fixed difference of ", "keys and queries, not ",
          offset.str());
  const int32_t shift = static_cast<int32_t>(offset.constant());
  return b("add", {rows, b.constant(Constant::from_i32("offset", {}, std::span(&shift, 1)))});
}

// Additive [T, S] mask of causality and window, null if everything is visible.
Value* position_mask(Builder& b, const Dim& tokens, const Dim& keys, bool causal, int64_t window) {
  if (!causal && window == 0) return nullptr;
  Value* columns = b.reshape(b("iota", {}, {{"shape", Shape{keys}}}), {Dim(1), keys});
  Value* visible = b.scalar(0.0);
  Value* hidden = b.scalar(-std::numeric_limits<double>::infinity());
  Value* mask = visible;
  if (causal) {
    Value* upper = b("less_equal", {columns, query_positions(b, tokens, keys, 0)});
    mask = b("where", {upper, mask, hidden});
  }
  if (window > 0) {
    Value* lower = b("less_equal", {query_positions(b, tokens, keys, window - 1), columns});
    mask = b("where", {lower, mask, hidden});
  }
  return mask;
}

std::vector<Value*> decompose_flash_attention(Builder& b, std::span<Value* const> inputs, const Attrs& attrs) {
  const Shape& q = inputs[0]->shape();
  const Shape& k = inputs[1]->shape();
  const Dim &batch = q[0], &tokens = q[1], &heads = q[2], &head_dim = q[3], &keys = k[1], &kv_heads = k[2];
  const Dim group = Dim::floordiv(heads, kv_heads);
  const auto keys_first = [&](Value* x) {
    return b.transpose(b.reshape(x, {batch, keys, kv_heads, Dim(1), head_dim}), {0, 2, 3, 1, 4});
  };
  Value* queries = b.transpose(b.reshape(inputs[0], {batch, tokens, kv_heads, group, head_dim}), {0, 2, 3, 1, 4});
  Value* scores = b("matmul", {queries, keys_first(inputs[1])}, {{"transpose_b", true}});  // [B, KV, G, T, S]
  scores = b("mul", {scores, b.scalar(attrs.real("scale"))});
  if (const double softcap = attrs.real("softcap"); softcap > 0) {
    scores = b("mul", {b("tanh", {b("div", {scores, b.scalar(softcap)})}), b.scalar(softcap)});
  }
  if (inputs.size() > 3 && inputs[3] != nullptr) {
    Value* mask = inputs[3];
    const Shape& shape = mask->shape();
    if (shape.size() == 4 || shape.size() == 3) {  // split the head axis as the scores are
      const Dim& mask_heads = shape[shape.size() - 3];
      const bool shared = mask_heads == Dim(1);
      mask = b.reshape(mask, {shape.size() == 4 ? shape[0] : Dim(1), shared ? Dim(1) : kv_heads,
                              shared ? Dim(1) : group, shape[shape.size() - 2], shape.back()});
    }
    scores = b("add", {scores, mask});
  }
  Value* mask = position_mask(b, tokens, keys, attrs.flag("causal"), attrs.integer("window"));
  if (mask != nullptr) scores = b("add", {scores, mask});
  Value* out = b("matmul", {b("softmax", {scores}), keys_first(inputs[2])});
  return {b.reshape(b.transpose(out, {0, 3, 1, 2, 4}), q)};
}

}  // namespace

void register_op_flash_attention(OpRegistry& registry) {
  OpDef op;
  op.name = "flash_attention";
  op.doc =
      "softmax(q k^T * scale + mask) v for q [B, T, H, D], k and v [B, S, KV, D]; query head h reads kv head h / (H / "
      "KV). "
      "With a softcap the scaled scores s become softcap * tanh(s / softcap) before the mask (Gemma Team 2024, "
      "arXiv:2408.00118). mask is added and broadcasts to [B, H, T, S]. Query t stands at key position t + S - T: "
      "causal hides the keys "
      "beyond "
      "it, a window those at or before its position minus the window. A row without a visible key gives 0. Dao et al. "
      "2022, "
      "arXiv:2205.14135.";
  op.inputs = {{"q"}, {"k"}, {"v"}, {"mask", true}};
  op.attrs = {{"scale", AttrKind::kReal, 1.0, true, "factor of the scores"},
              {"softcap", AttrKind::kReal, 0.0, false, "soft bound of the scaled scores; 0: none"},
              {"causal", AttrKind::kBool, false, false, "hide later keys"},
              {"window", AttrKind::kInt, int64_t{0}, false, "visible keys up to the query's own; 0: all"}};
  op.fused = true;
  op.infer = infer_flash_attention;
  op.flops = [](const Node& node) { return Dim(4) * num_elements(node.input(0)->shape()) * node.input(1)->dim(1); };
  op.decompose = decompose_flash_attention;
  op.make_cpu_kernel = [](const KernelRequest& request) { return make_flash_attention_kernel(request); };
  registry.add(std::move(op));
}

}  // namespace atb
