// SPDX-License-Identifier: Apache-2.0
// SDPA: matmul(q, k^T), scale, mask, softmax, matmul with v become FlashAttention.
//
// Scores have axes [B, heads..., T, S]: none, one (heads) or more head axes (kv heads, group). k and v may have extent
// 1 on the trailing head axes: those query heads share a key head, which is grouped-query attention. FlashAttention
// wants tokens before heads, so views go around it; they cancel with those of the graph in canonical form.
#include <cmath>

#include "passes/analysis/mask_predicate.h"
#include "passes/engine/matcher.h"
#include "passes/engine/pattern.h"
#include "passes/engine/rewriter.h"

namespace atb {
namespace {

// q [B, heads..., T, D], k and v [B, heads or 1..., S, D] once transposed factors are turned.
struct Layout {
  Shape heads;  // of q
  Dim q_heads = 1;
  Dim kv_heads = 1;
};

bool transposed_b(const Node* node) { return node->attrs().flag("transpose_b"); }

// Shape of k as [..., S, D], of v as [..., S, D]: the right factor of a matmul as its left factor sees it.
Shape swapped(Shape shape) {
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return shape;
}
Shape key_shape(const Match& m) {
  return transposed_b(m.node("scores")) ? m.value("k")->shape() : swapped(m.value("k")->shape());
}
Shape value_shape(const Match& m) {
  return transposed_b(m.node("output")) ? swapped(m.value("v")->shape()) : m.value("v")->shape();
}

bool same(const Dim& a, const Dim& b) { return equal(a, b) == Tri::kYes; }

std::optional<Mismatch> check_shapes(const Match& m) {
  const Shape& q = m.value("q")->shape();
  const Shape k = key_shape(m);
  const Shape v = value_shape(m);
  const auto mismatch = [&](std::string what) {
    return Mismatch{m.node("scores"), "q " + to_string(q) + ", k " + to_string(k) + ", v " + to_string(v),
                    std::move(what)};
  };
  if (q.size() < 3 || q.size() > 6 || k.size() != q.size() || v.size() != q.size()) {
    return mismatch("three to six axes each");
  }
  if (!same(q.front(), k.front()) || !same(q.front(), v.front())) return mismatch("one batch");
  if (!same(q.back(), k.back()) || !same(q.back(), v.back())) return mismatch("one head size");
  if (!same(k[k.size() - 2], v[v.size() - 2])) return mismatch("as many keys as values");
  bool shared = false;  // from the first shared axis on, all are
  for (size_t i = 1; i + 2 < q.size(); ++i) {
    if (!same(k[i], v[i])) return mismatch("equal heads of k and v");
    const bool equal_heads = same(q[i], k[i]);
    if (same(k[i], 1) && !equal_heads) shared = true;
    if (!same(k[i], 1) && (shared || !equal_heads)) return mismatch("key heads that query heads share evenly");
  }
  return std::nullopt;
}

Layout layout_of(const Match& m) {
  Layout layout;
  const Shape& q = m.value("q")->shape();
  const Shape k = key_shape(m);
  for (size_t i = 1; i + 2 < q.size(); ++i) {
    layout.heads.push_back(q[i]);
    layout.q_heads = layout.q_heads * q[i];
    layout.kv_heads = layout.kv_heads * k[i];
  }
  return layout;
}

std::optional<Mismatch> check_types(const Match& m) {
  const DType q = m.value("q")->type().dtype;
  for (const char* name : {"q", "k", "v"}) {
    const DType dtype = m.value(name)->type().dtype;
    if (dtype == q && is_float(dtype)) continue;
    return Mismatch{m.node("scores"), std::string(name) + " " + std::string(dtype_name(dtype)),
                    is_float(q) ? std::string(dtype_name(q)) + " as q" : "a float type"};
  }
  return std::nullopt;
}

std::optional<Mismatch> check_softmax_axis(const Match& m) {
  const int64_t axis = m.node("softmax")->attrs().integer("axis");
  if (axis == -1 || axis + 1 == m.value("scores")->rank()) return std::nullopt;
  return Mismatch{m.node("softmax"), "axis " + std::to_string(axis), "the last axis (keys)"};
}

std::optional<Mismatch> check_scale(const Match& m) {
  if (!m.has("scale")) return std::nullopt;
  const Value* scale = m.value("scale");
  const auto mismatch = [&](std::string what) {
    return Mismatch{m.value("scaled")->producer(), std::move(what), "one known finite number"};
  };
  if (!same(num_elements(scale->shape()), 1)) return mismatch("@" + scale->name() + " " + to_string(scale->shape()));
  if (scale->constant()->absent()) return mismatch("@" + scale->name() + " without data");
  const double value = scale->constant()->to_f32()[0];
  if (!std::isfinite(value) || value == 0) return mismatch(std::to_string(value));
  return std::nullopt;
}

double scale_of(const Match& m) {
  if (!m.has("scale")) return 1.0;
  const double value = m.value("scale")->constant()->to_f32()[0];
  return m.value("scaled")->producer()->is("div") ? 1.0 / value : value;
}

// Neither scale nor mask may widen the scores.
std::optional<Mismatch> check_mask(const Match& m) {
  const Value* softmax = m.value("softmax");
  const Value* scores = m.value("scores");
  if (equal(softmax->shape(), scores->shape()) != Tri::kYes) {
    return Mismatch{m.value("masked")->producer(), to_string(softmax->shape()),
                    to_string(scores->shape()) + ", a mask that broadcasts to the scores"};
  }
  for (const char* name : {"mask", "second mask"}) {
    if (!m.has(name) || is_float(m.value(name)->type().dtype)) continue;
    return Mismatch{m.value("masked")->producer(), m.value(name)->type().str(), "a mask of floats"};
  }
  return std::nullopt;
}

// [B, heads..., T, D] -> [B, T, heads, D].
Value* tokens_first(Rewriter& rewriter, Value* x, const Dim& heads) {
  const int64_t rank = x->rank();
  std::vector<int64_t> perm = {0, rank - 2};
  for (int64_t axis = 1; axis + 2 < rank; ++axis) perm.push_back(axis);
  perm.push_back(rank - 1);
  Value* turned = rewriter.transpose(x, perm);
  return rewriter.reshape(turned, {x->dim(0), x->dim(-2), heads, x->dim(-1)});
}

// [B, T, heads, D] -> [B, heads..., T, D].
Value* heads_first(Rewriter& rewriter, Value* x, const Shape& heads) {
  Shape split = {x->dim(0), x->dim(1)};
  split.insert(split.end(), heads.begin(), heads.end());
  split.push_back(x->dim(-1));
  Value* apart = rewriter.reshape(x, split);
  const int64_t rank = apart->rank();
  std::vector<int64_t> perm = {0};
  for (int64_t axis = 2; axis + 1 < rank; ++axis) perm.push_back(axis);
  perm.push_back(1);
  perm.push_back(rank - 1);
  return rewriter.transpose(apart, perm);
}

Value* swap_last(Rewriter& rewriter, Value* x) {
  std::vector<int64_t> perm;
  for (int64_t axis = 0; axis + 2 < x->rank(); ++axis) perm.push_back(axis);
  perm.push_back(x->rank() - 1);
  perm.push_back(x->rank() - 2);
  return rewriter.transpose(x, perm);
}

// A mask [.., T, S] on scores [B, heads..., T, S] as one on [B, H, T, S].
Value* mask_on_heads(Rewriter& rewriter, Value* mask, const Value* scores, const Dim& q_heads) {
  const size_t rank = scores->shape().size();
  Shape shape = mask->shape();
  if (shape.size() <= 2 || rank == 4) return mask;
  shape.insert(shape.begin(), rank - shape.size(), Dim(1));
  Dim heads = 1;
  for (size_t i = 1; i + 2 < rank; ++i) heads = heads * shape[i];
  if (!(heads == Dim(1)) && !(heads == q_heads)) {
    throw_error(Code::kUnsupported, "mask ", to_string(mask->shape()), " over some axes of the heads");
  }
  return rewriter.reshape(mask, {shape[0], heads, shape[rank - 2], shape[rank - 1]});
}

void rewrite(const Match& m, Rewriter& rewriter) {
  const Layout layout = layout_of(m);
  Value* q = tokens_first(rewriter, m.value("q"), layout.q_heads);
  Value* k = transposed_b(m.node("scores")) ? m.value("k") : swap_last(rewriter, m.value("k"));
  Value* v = transposed_b(m.node("output")) ? swap_last(rewriter, m.value("v")) : m.value("v");
  k = tokens_first(rewriter, k, layout.kv_heads);
  v = tokens_first(rewriter, v, layout.kv_heads);
  std::vector<Value*> inputs = {q, k, v};
  bool causal = false;
  int64_t window = 0;
  if (m.has("mask")) {
    Value* mask = m.value("mask");
    if (m.has("second mask")) mask = rewriter.value("add", {mask, m.value("second mask")});
    const MaskPredicate seen = analyse_mask(mask, q->dim(1), k->dim(1));
    causal = seen.kind == MaskPredicate::Kind::kCausal || seen.kind == MaskPredicate::Kind::kWindow;
    window = seen.window;
    if (seen.kind == MaskPredicate::Kind::kUnknown) {
      inputs.push_back(mask_on_heads(rewriter, mask, m.value("scores"), layout.q_heads));
    }
  }
  Value* out =
      rewriter.value("flash_attention", inputs, {{"scale", scale_of(m)}, {"causal", causal}, {"window", window}});
  rewriter.replace(m.value("output"), heads_first(rewriter, out, layout.heads));
}

}  // namespace

void register_pattern_sdpa(PatternRegistry& registry) {
  Pattern p("SDPA", "FlashAttention", 300);
  const PatternId scores = p.op("scores", {"matmul"}, {p.any("q"), p.any("k")});
  const PatternId scale = p.constant("scale");
  const PatternId times = p.commutative(p.op("scale by mul", {"mul"}, {scores, scale}));
  const PatternId over = p.op("scale by div", {"div"}, {scores, scale});
  const PatternId scaled = p.one_of("scaled", {times, over, scores});
  const PatternId add = p.commutative(p.op("add mask", {"add"}, {scaled, p.any("mask")}));
  const PatternId add_again = p.commutative(p.op("add second mask", {"add"}, {add, p.any("second mask")}));
  const PatternId masked = p.one_of("masked", {add_again, add, scaled});
  const PatternId softmax = p.op("softmax", {"softmax"}, {masked});
  p.root(p.op("output", {"matmul"}, {softmax, p.any("v")}));
  p.where("shapes of q, k and v", check_shapes);
  p.where("types of q, k and v", check_types);
  p.where("softmax over keys", check_softmax_axis);
  p.where("scale", check_scale);
  p.where("mask", check_mask);
  p.rewrite(rewrite);
  registry.add(std::move(p));
}

}  // namespace atb
