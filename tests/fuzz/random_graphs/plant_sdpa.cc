// SPDX-License-Identifier: Apache-2.0
// Plants of SDPA: scores, scale, masks, softmax over the keys, values.
#include <cmath>
#include <limits>

#include "fuzz/random_graphs/fusions.h"

namespace atb::random_graphs {

const std::vector<std::string> kSdpaFlaws = {
    // no attention of the kind that FlashAttention computes, or read in between
    "weights read elsewhere", "scores read elsewhere", "softmax over queries", "scale of each head", "scale zero",
    "mask that widens", "integer mask", "k of one batch", "v of fewer heads",
    // attention, but not causal: the mask stays explicit
    "mask one ahead", "mask one behind", "mask turned round", "mask that only damps", "mask by given positions"};

namespace {

struct Form {
  Dim keys;
  int64_t kv_heads, group, head_dim;
  int axes;  // 3: [B, T, D], 4: [B, H, T, D], 5: [B, KV, G, T, D]
  bool keys_are_tokens;
};

bool starts_with_mask(std::string_view flaw) { return flaw.starts_with("mask "); }
bool changes_causality(std::string_view flaw) { return starts_with_mask(flaw) && flaw != "mask that widens"; }

Form draw_form(Sketch& sketch, std::string_view flaw) {
  Prng& random = sketch.random();
  Form form;
  form.keys_are_tokens = flaw.empty() ? random.chance(0.8) : true;
  form.keys = form.keys_are_tokens ? sketch.tokens() : Dim(random.pick(std::vector<int64_t>{1, 3, 5, 17}));
  form.axes = static_cast<int>(random.between(3, 5));
  const bool needs_heads = flaw == "scale of each head" || flaw == "v of fewer heads" || flaw == "mask that widens";
  if (needs_heads) form.axes = 4;
  form.kv_heads = form.axes == 3 ? 1 : random.between(needs_heads ? 2 : 1, 3);
  form.group = form.axes == 3 ? 1 : random.between(1, 3);
  if (form.axes == 4 && form.kv_heads > 1) form.group = 1;
  if (flaw == "mask that widens") form.kv_heads = 1;
  if (needs_heads) form.group = 1;
  form.head_dim = random.pick(std::vector<int64_t>{1, 3, 4, 8, 16});
  return form;
}

// [batch, heads..., rows, head_dim] from a stream of tokens, or given so.
Value* split_heads(Sketch& sketch, const Form& form, Shape heads, const Dim& rows, bool tokens, Dim batch) {
  const int64_t count = num_elements(heads).constant();
  const bool from_stream = tokens && batch == sketch.batch() && sketch.random().chance(0.7);
  if (!from_stream) {
    Shape shape = heads;
    shape.insert(shape.begin(), batch);
    shape.insert(shape.end(), {rows, Dim(form.head_dim)});
    return sketch.input(DType::kF32, shape);
  }
  Value* x = stream(sketch, 8);
  Value* projected = project(sketch, x, count * form.head_dim, sketch.random().chance(0.2));
  if (heads.empty()) return projected;
  Shape split = {batch, rows};
  split.insert(split.end(), heads.begin(), heads.end());
  split.emplace_back(form.head_dim);
  std::vector<int64_t> perm = {0};
  for (int64_t axis = 2; axis < static_cast<int64_t>(heads.size()) + 2; ++axis) perm.push_back(axis);
  perm.insert(perm.end(), {1, static_cast<int64_t>(heads.size()) + 2});
  return sketch.transpose(sketch.reshape(projected, split), perm);
}

// Heads of q and of k and v.
Shape query_heads(const Form& form) {
  if (form.axes == 3) return {};
  if (form.axes == 4) return {Dim(form.kv_heads * form.group)};
  return {Dim(form.kv_heads), Dim(form.group)};
}
Shape key_heads(const Form& form) {
  if (form.axes == 3) return {};
  if (form.axes == 4) return {Dim(form.kv_heads)};
  return {Dim(form.kv_heads), Dim(1)};
}

// The right factor, sometimes turned round before a product that does not turn it.
Value* product(Sketch& sketch, Value* a, Value* b, bool by_rows) {
  const int64_t rank = b->rank();
  std::vector<int64_t> perm;
  for (int64_t axis = 0; axis + 2 < rank; ++axis) perm.push_back(axis);
  perm.insert(perm.end(), {rank - 1, rank - 2});
  const bool turned = sketch.random().chance(0.3);
  if (turned) b = sketch.transpose(b, perm);
  return sketch.value("matmul", {a, b}, {{"transpose_b", by_rows != turned}});
}

Value* scaled(Sketch& sketch, std::string_view flaw, Value* scores) {
  if (flaw == "scale zero") return sketch.value("mul", {scores, sketch.scalar(0)});
  if (flaw == "scale of each head") {
    return sketch.value("mul", {scores, sketch.constant({scores->dim(1).constant(), 1, 1}, 0.1, 0.5)});
  }
  if (sketch.random().chance(0.2)) return scores;
  const bool divides = sketch.random().chance(0.4);
  const double by = static_cast<double>(sketch.random().between(1, 12)) / (divides ? 4 : 8);
  const std::vector<int64_t> shape(static_cast<size_t>(sketch.random().chance(0.7) ? 0 : sketch.random().below(4)), 1);
  // What divides becomes a factor, of f32 where FlashAttention is spelled out.
  if (divides && !is_power_of_two(by)) sketch.expect_rounding();
  Value* scale = sketch.numbers(shape, {by});
  if (divides) return sketch.value("div", {scores, scale});
  return sketch.random().chance(0.8) ? sketch.value("mul", {scores, scale}) : sketch.value("mul", {scale, scores});
}

// [tokens, keys] of bool: which keys a query sees. Window 0: all up to its own.
Value* visible(Sketch& sketch, std::string_view flaw, const Dim& tokens, int64_t window) {
  Value* positions = flaw == "mask by given positions" ? sketch.input(DType::kI32, {tokens})
                                                       : sketch.value("iota", {}, {{"shape", Shape{tokens}}});
  Value* queries = sketch.reshape(positions, {tokens, Dim(1)});
  Value* keys = sketch.reshape(positions, {Dim(1), tokens});
  const auto shifted = [&](Value* x, double by) {
    return sketch.value("add", {x, sketch.numbers({}, {by}, DType::kI32)});
  };
  if (flaw == "mask one ahead") return sketch.value("less_equal", {keys, shifted(queries, 1)});
  if (flaw == "mask one behind") return sketch.value("less_equal", {shifted(keys, 1), queries});
  if (flaw == "mask turned round") return sketch.value("less_equal", {queries, keys});
  if (window > 0) return sketch.value("less_equal", {queries, shifted(keys, static_cast<double>(window - 1))});
  return sketch.value("less_equal", {keys, queries});
}

Value* chosen(Sketch& sketch, Value* condition, double blocked) {
  return sketch.value("where", {condition, sketch.scalar(0), sketch.scalar(blocked)});
}

double blocked_by(Sketch& sketch, std::string_view flaw) {
  if (flaw == "mask that only damps") return -2;
  if (sketch.random().chance(0.5)) return -std::numeric_limits<double>::infinity();
  if (sketch.random().chance(0.3)) return -1e9;
  return sketch.random().chance(0.5) ? -1e38F : std::numeric_limits<float>::lowest();
}

// Of every shape that broadcasts to the scores.
Value* explicit_mask(Sketch& sketch, const Value* scores) {
  Shape shape = scores->shape();
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    if (sketch.random().chance(0.5)) shape[i] = 1;
  }
  const int64_t drop = scores->rank() > 2 && sketch.random().chance(0.3) ? scores->rank() - 2 : 0;
  shape.erase(shape.begin(), shape.begin() + drop);
  return sketch.input(DType::kF32, shape);
}

Value* causal_scores(Sketch& sketch, std::string_view flaw, const Form& form, Value* scores, Plant& plant) {
  const int64_t window = flaw.empty() && sketch.random().chance(0.3) ? sketch.random().between(1, 4) : 0;
  // One token sees itself whatever the mask: then there is nothing to recognise.
  if (!(form.keys == Dim(1))) plant.causal = !changes_causality(flaw);
  Value* seen = visible(sketch, changes_causality(flaw) ? flaw : "", form.keys, 0);
  if (flaw.empty() && sketch.random().chance(0.2)) {
    return sketch.value("where", {seen, scores, sketch.scalar(-std::numeric_limits<double>::infinity())});
  }
  Value* mask = chosen(sketch, seen, blocked_by(sketch, flaw));
  if (window > 0) {
    Value* near_seen = visible(sketch, "", form.keys, window);
    Value* near = chosen(sketch, near_seen, blocked_by(sketch, flaw));
    if (sketch.random().chance(0.5)) return sketch.value("add", {sketch.value("add", {scores, mask}), near});
    mask = sketch.value("where", {seen, near, sketch.scalar(-std::numeric_limits<double>::infinity())});
  }
  return sketch.value("add", {scores, mask});
}

Value* masked(Sketch& sketch, std::string_view flaw, const Form& form, Value* scores, Plant& plant) {
  if (flaw == "mask that widens")
    return sketch.value("add", {scores, sketch.input(DType::kF32, {Dim(2), Dim(1), Dim(1)})});
  if (flaw == "integer mask") return sketch.value("add", {scores, sketch.input(DType::kI32, {form.keys})});
  if (changes_causality(flaw) || (form.keys_are_tokens && sketch.random().chance(0.6))) {
    return causal_scores(sketch, flaw, form, scores, plant);
  }
  plant.causal = false;
  if (sketch.random().chance(0.4)) return sketch.value("add", {scores, explicit_mask(sketch, scores)});
  return scores;
}

Value* weighed(Sketch& sketch, std::string_view flaw, Value* scores) {
  if (flaw != "softmax over queries") return sketch.value("softmax", {scores}, {{"axis", int64_t{-1}}});
  const int64_t rank = scores->rank();
  std::vector<int64_t> perm;
  for (int64_t axis = 0; axis + 2 < rank; ++axis) perm.push_back(axis);
  perm.insert(perm.end(), {rank - 1, rank - 2});
  return sketch.transpose(sketch.value("softmax", {sketch.transpose(scores, perm)}), perm);
}

}  // namespace

Plant plant_sdpa(Sketch& sketch, std::string_view flaw) {
  Plant plant{.pattern = "SDPA",
              .flaw = std::string(flaw),
              .fires = flaw.empty() || changes_causality(flaw),
              .causal = {},
              .live = {},
              .returned = {}};
  const Form form = draw_form(sketch, flaw);
  Value* q = split_heads(sketch, form, query_heads(form), sketch.tokens(), true, sketch.batch());
  const Dim k_batch = flaw == "k of one batch" ? Dim(1) : sketch.batch();
  if (flaw == "k of one batch") plant.fires = sketch.batch() == Dim(1);
  if (flaw == "softmax over queries") plant.fires = sketch.tokens() == Dim(1) && form.keys == Dim(1);
  Value* k = split_heads(sketch, form, key_heads(form), form.keys, form.keys_are_tokens, k_batch);
  Value* v = nullptr;
  if (flaw.empty() && sketch.random().chance(0.1)) {
    v = sketch.input(DType::kF16, k->shape());
  } else {
    const Shape heads = flaw == "v of fewer heads" ? Shape{Dim(1)} : key_heads(form);
    v = split_heads(sketch, form, heads, form.keys, form.keys_are_tokens, sketch.batch());
  }
  Value* scores = product(sketch, q, k, true);
  Value* weights = weighed(sketch, flaw, masked(sketch, flaw, form, scaled(sketch, flaw, scores), plant));
  Value* out = product(sketch, weights, v, false);
  plant.live.push_back(out);
  if (flaw == "weights read elsewhere") plant.returned.push_back(weights);
  if (flaw == "scores read elsewhere") plant.returned.push_back(scores);
  sketch.offer(out);
  if (out->rank() >= 4 && sketch.random().chance(0.5)) {
    std::vector<int64_t> perm = {0, out->rank() - 2};
    for (int64_t axis = 1; axis + 2 < out->rank(); ++axis) perm.push_back(axis);
    perm.push_back(out->rank() - 1);
    Value* turned = sketch.transpose(out, perm);
    const Dim width = num_elements({turned->shape().begin() + 2, turned->shape().end()});
    sketch.offer(sketch.reshape(turned, {turned->dim(0), turned->dim(1), width}));
  }
  return plant;
}

}  // namespace atb::random_graphs
