// SPDX-License-Identifier: Apache-2.0
// SDPA: matmul(q, k^T), scale, softcap, mask, softmax, matmul with v become FlashAttention.
//
// Scores have axes [B, heads..., T, S]: none, one (heads) or more head axes (kv heads, group). k and v may have extent
// 1 on the trailing head axes: those query heads share a key head, which is grouped-query attention; so do heads that
// are repeated on [B, H, S, D]. FlashAttention wants tokens before heads, so views go around it; they cancel with those
// of the graph in canonical form.
#include <cmath>
#include <limits>
#include <sstream>

#include "passes/analysis/forms.h"
#include "passes/analysis/mask_predicate.h"
#include "passes/analysis/scalar.h"
#include "passes/engine/matcher.h"
#include "passes/engine/pattern.h"
#include "passes/engine/rewriter.h"
#include "passes/patterns/sdpa_util.h"

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

double factor(const Match& m, const std::string& op, const std::string& constant) {
  if (!m.has(constant)) return 1.0;
  const double value = *scalar_value(m.value(constant));
  return m.value(op)->producer()->is("div") ? 1.0 / value : value;
}

// The factors before and after the softcap: pattern nodes of an operator and its constant.
const std::vector<std::pair<std::string, std::string>> kFactors = {{"scaled", "scale"}, {"capped", "cap"}};

std::optional<Mismatch> check_scale(const Match& m) {
  for (const auto& [op, constant] : kFactors) {
    if (!m.has(constant)) continue;
    const Value* scale = m.value(constant);
    const auto mismatch = [&, name = op](std::string what) {
      return Mismatch{m.value(name)->producer(), std::move(what), "one known finite number"};
    };
    if (!same(num_elements(scale->shape()), 1)) return mismatch("@" + scale->name() + " " + to_string(scale->shape()));
    if (scale->constant()->absent()) return mismatch("@" + scale->name() + " without data");
    const double value = *scalar_value(scale);
    if (!std::isfinite(value) || value == 0) return mismatch(std::to_string(value));
  }
  return std::nullopt;
}

std::optional<Mismatch> check_cap(const Match& m) {
  if (!m.has("cap") || factor(m, "capped", "cap") > 0) return std::nullopt;
  return Mismatch{m.value("capped")->producer(), std::to_string(factor(m, "capped", "cap")), "a cap above 0"};
}

// Canonical form adds masks, but for fills that are none; what else `where` does to scores stays as it is.
std::optional<Mismatch> check_fill(const Match& m) {
  if (!m.has("filled")) return std::nullopt;
  const Node* where = m.node("filled");
  std::optional<double> fill;
  for (const size_t branch : {2, 1}) {
    if (const std::optional<double> number = scalar_value(where->input(branch))) fill = number;
  }
  std::ostringstream found;
  std::ostringstream needs;
  needs << "-inf or one number of " << kHidden << " or less in the place of scores";
  if (!fill) {
    found << "where() between computed values";
  } else {
    found << "a fill of " << *fill;
    if (*fill <= kHidden) found << " in " << dtype_name(where->output()->type().dtype) << " or beside another one";
  }
  return Mismatch{where, found.str(), needs.str()};
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

// A mask [.., T, S] on scores [B, heads..., T, S] as one on [B, H, T, S], with S keys.
Value* mask_on_heads(Rewriter& rewriter, Value* mask, const Value* scores, const Dim& q_heads) {
  const size_t rank = scores->shape().size();
  Shape shape = mask->shape();
  if (shape.empty() || !(shape.back() == scores->dim(-1))) {  // a number a row
    if (shape.empty()) shape.push_back(1);
    shape.back() = scores->dim(-1);
    mask = rewriter.value("broadcast", {mask}, {{"shape", shape}});
  }
  if (shape.size() <= 2 || rank == 4) return mask;
  shape.insert(shape.begin(), rank - shape.size(), Dim(1));
  Dim heads = 1;
  for (size_t i = 1; i + 2 < rank; ++i) heads = heads * shape[i];
  if (!(heads == Dim(1)) && !(heads == q_heads)) {  // over some axes of the heads: over all
    mask = rewriter.reshape(mask, shape);
    for (size_t i = 1; i + 2 < rank; ++i) shape[i] = scores->shape()[i];
    mask = rewriter.value("broadcast", {mask}, {{"shape", shape}});
    heads = q_heads;
  }
  return rewriter.reshape(mask, {shape[0], heads, shape[rank - 2], shape[rank - 1]});
}

Value* both(Rewriter& rewriter, Value* a, Value* b) { return a == nullptr ? b : rewriter.value("logical_and", {a, b}); }

// An additive mask [B, 1, T or 1, S] that hides the keys that are padding or of another packed sequence.
Value* rest_of_mask(Rewriter& rewriter, const MaskPredicate& predicate, const Dim& tokens, DType dtype) {
  Value* visible = nullptr;
  for (const Packing& one : predicate.packing) {
    Value* queries = rewriter.reshape(one.segments, {one.batch, 1, tokens, 1});
    Value* keys = rewriter.reshape(one.segments, {one.batch, 1, 1, tokens});
    visible = both(rewriter, visible, rewriter.value("equal", {queries, keys}));
  }
  for (const KeyPadding& one : predicate.padding) {
    Value* keys = one.negated ? rewriter.value("logical_not", {one.present}) : one.present;
    visible = both(rewriter, visible, rewriter.reshape(keys, {keys->dim(0), 1, 1, keys->dim(1)}));
  }
  Value* seen = rewriter.constant(scalar_constant(dtype, 0.0));
  Value* blocked = rewriter.constant(scalar_constant(dtype, -std::numeric_limits<double>::infinity()));
  return rewriter.value("where", {visible, seen, blocked});
}

struct Masking {
  bool causal = false;
  int64_t window = 0;
  Value* mask = nullptr;  // what the two do not say
};

// Two masks of which one says where a query stands and hides with -inf: what the other adds stands apart from it.
// `other`: what is left to say of the mask; causal and window are in the result.
std::optional<Masking> causal_beside(Value* mask, Value* other, const Value* scores) {
  const MaskPredicate seen = analyse_mask(mask, scores->dim(-2), scores->dim(-1));
  if (!seen.causal() || !seen.infinite || !seen.padding.empty() || !seen.packing.empty()) return std::nullopt;
  return Masking{.causal = true, .window = seen.window, .mask = other};
}

// Padding may stand apart from causality only if hidden keys have -inf: a row that sees no key is then 0 either way.
// Packed sequences always may: each query sees its own key.
Masking masking_of(const Match& m, Rewriter& rewriter, const Layout& layout) {
  if (!m.has("mask")) return {};
  Value* mask = m.value("mask");
  if (m.has("second mask")) mask = rewriter.value("add", {mask, m.value("second mask")});
  const Value* scores = m.value("scores");
  const MaskPredicate seen = analyse_mask(mask, scores->dim(-2), scores->dim(-1));
  const bool on_scores = !seen.by_batch() || mask->rank() == scores->rank();
  const bool apart = on_scores && (seen.padding.empty() || seen.infinite);
  if (seen.kind == MaskPredicate::Kind::kUnknown || !apart) {
    if (m.has("second mask")) {
      Value* both[] = {m.value("mask"), m.value("second mask")};
      std::optional<Masking> split = causal_beside(both[0], both[1], scores);
      if (!split) split = causal_beside(both[1], both[0], scores);
      if (split) {
        split->mask = mask_on_heads(rewriter, split->mask, scores, layout.q_heads);
        return *split;
      }
    }
    return {.mask = mask_on_heads(rewriter, mask, scores, layout.q_heads)};
  }
  Masking result{.causal = seen.causal(), .window = seen.window};
  if (!seen.padding.empty() || !seen.packing.empty()) {
    result.mask = rest_of_mask(rewriter, seen, scores->dim(-1), mask->type().dtype);
  }
  return result;
}

void rewrite(const Match& m, Rewriter& rewriter) {
  Layout layout = layout_of(m);
  Value* k = m.value("k");
  Value* v = m.value("v");
  const std::optional<Repeated> k_repeated = k->rank() == 4 ? find_repeated(k, 1) : std::nullopt;
  const std::optional<Repeated> v_repeated = v->rank() == 4 ? find_repeated(v, 1) : std::nullopt;
  if (k_repeated && v_repeated && same(k_repeated->heads, v_repeated->heads)) {
    layout.kv_heads = k_repeated->heads;
    k = without_repeats(rewriter, *k_repeated);
    v = without_repeats(rewriter, *v_repeated);
  }
  const double cap = factor(m, "capped", "cap");
  const double scale = factor(m, "scaled", "scale") * cap;
  Value* q = tokens_first(rewriter, m.value("q"), layout.q_heads);
  k = tokens_first(rewriter, transposed_b(m.node("scores")) ? k : swap_last(rewriter, k), layout.kv_heads);
  v = tokens_first(rewriter, transposed_b(m.node("output")) ? swap_last(rewriter, v) : v, layout.kv_heads);
  const Masking masking = masking_of(m, rewriter, layout);
  std::vector<Value*> inputs = {q, k, v};
  if (masking.mask != nullptr) inputs.push_back(masking.mask);
  Attrs attrs = {{"scale", scale}, {"causal", masking.causal}, {"window", masking.window}};
  if (m.has("cap")) attrs.set("softcap", cap);
  rewriter.replace(m.value("output"),
                   heads_first(rewriter, rewriter.value("flash_attention", inputs, attrs), layout.heads));
}

}  // namespace

void register_pattern_sdpa(PatternRegistry& registry) {
  Pattern p("SDPA", "FlashAttention", 300);
  const PatternId scores = p.op("scores", {"matmul"}, {p.any("q"), p.any("k")});
  const PatternId scale = p.constant("scale");
  const PatternId times = p.commutative(p.op("scale by mul", {"mul"}, {scores, scale}));
  const PatternId over = p.op("scale by div", {"div"}, {scores, scale});
  const PatternId scaled = p.one_of("scaled", {times, over, scores});
  const PatternId tanh = p.op("tanh", {"tanh"}, {scaled});
  const PatternId capped = p.commutative(p.op("capped", {"mul"}, {tanh, p.constant("cap")}));
  const PatternId logits = p.one_of("logits", {capped, scaled});
  const PatternId add = p.commutative(p.op("add mask", {"add"}, {logits, p.any("mask")}));
  const PatternId add_again = p.commutative(p.op("add second mask", {"add"}, {add, p.any("second mask")}));
  const PatternId filled = p.op("filled", {"where"}, {p.any("condition"), p.any("where true"), p.any("where false")});
  const PatternId masked = p.one_of("masked", {add_again, add, logits, filled});
  const PatternId softmax = p.op("softmax", {"softmax"}, {masked});
  p.root(p.op("output", {"matmul"}, {softmax, p.any("v")}));
  p.where("a mask", check_fill);
  p.where("shapes of q, k and v", check_shapes);
  p.where("types of q, k and v", check_types);
  p.where("softmax over keys", check_softmax_axis);
  p.where("scale", check_scale);
  p.where("softcap", check_cap);
  p.where("mask", check_mask);
  p.rewrite(rewrite);
  registry.add(std::move(p));
}

}  // namespace atb
