// SPDX-License-Identifier: Apache-2.0
// Plants of QKV+RoPE: three linears on one input, two of them split into heads and rotated.
#include "fuzz/random_graphs/fusions.h"

namespace atb::random_graphs {

const std::vector<std::string> kQkvRopeFlaws = {
    "k of another input",  "v of another input", "q weight shared", "k weight in f16",
    "k in another layout", "k by other tables",  "v wider",         "weight not constant",
    "q bent in between",
};

namespace {

struct Heads {
  int64_t features, q_heads, kv_heads, head_dim, rotated;
  bool bias, head_norm, interleaved;
};

Heads draw_heads(Prng& random) {
  Heads heads;
  heads.features = random.pick(std::vector<int64_t>{5, 8, 16});
  heads.kv_heads = random.between(1, 2);
  heads.q_heads = heads.kv_heads * random.between(1, 3);
  heads.head_dim = random.pick(std::vector<int64_t>{2, 4, 6, 7, 8});
  heads.rotated = 2 * random.between(1, heads.head_dim / 2);
  heads.bias = random.chance(0.3);
  heads.head_norm = random.chance(0.3);
  heads.interleaved = random.chance(0.3);
  return heads;
}

// cos and sin [tokens, rotated / 2] or [batch, tokens, rotated / 2].
Node* tables(Sketch& sketch, Value* positions, int64_t rotated) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rotated / 2; ++i)
    frequencies.push_back(static_cast<double>(sketch.random().between(1, 256)) / 256);
  return sketch.node("rotary_table", {positions, sketch.numbers({rotated / 2}, frequencies)});
}

Value* rotated(Sketch& sketch, const Heads& heads, Value* projected, int64_t count, const Node* table,
               bool interleaved) {
  Value* split = sketch.reshape(projected, {sketch.batch(), sketch.tokens(), Dim(count), Dim(heads.head_dim)});
  // A chain over a single head is not raised: views and chain are moved past one another first.
  if (heads.head_norm) split = norm(sketch, split, count > 1);
  return sketch.value("rotary", {split, table->output(0), table->output(1)}, {{"interleaved", interleaved}});
}

}  // namespace

Plant plant_qkv_rope(Sketch& sketch, std::string_view flaw) {
  Plant plant{.pattern = "QKV+RoPE",
              .flaw = std::string(flaw),
              .fires = flaw.empty(),
              .causal = {},
              .live = {},
              .returned = {}};
  const Heads heads = draw_heads(sketch.random());
  const int64_t q_width = heads.q_heads * heads.head_dim;
  const int64_t kv_width = heads.kv_heads * heads.head_dim;
  Value* positions = sketch.random().chance(0.7) ? sketch.value("iota", {}, {{"shape", Shape{sketch.tokens()}}})
                                                 : sketch.input(DType::kI32, {sketch.batch(), sketch.tokens()});
  const Node* table = tables(sketch, positions, heads.rotated);
  Value* x = private_stream(sketch, heads.features);
  Value* k_x = flaw == "k of another input" ? private_stream(sketch, heads.features) : x;
  Value* v_x = flaw == "v of another input" ? private_stream(sketch, heads.features) : x;

  Value* q_weight = new_weight(sketch, q_width, heads.features);
  Value* q = heads.bias ? sketch.value("linear", {x, q_weight, sketch.constant({q_width}, 0.5)})
                        : sketch.value("linear", {x, q_weight});
  Value* k = flaw == "weight not constant"
                 ? sketch.value("linear", {k_x, sketch.input(DType::kF32, {Dim(kv_width), Dim(heads.features)})})
                 : project(sketch, k_x, kv_width, heads.bias, flaw == "k weight in f16" ? DType::kF16 : DType::kF32);
  // As wide as neither q nor k, or the two could change roles.
  Value* v = project(sketch, v_x, flaw == "v wider" ? q_width + kv_width : kv_width, sketch.random().chance(0.3));
  if (flaw == "q weight shared") {
    plant.live.push_back(sketch.value("linear", {private_stream(sketch, heads.features), q_weight}));
  }
  Value* bent = flaw == "q bent in between" ? sketch.value("silu", {q}) : q;
  Value* q_rotated = rotated(sketch, heads, bent, heads.q_heads, table, heads.interleaved);
  const Node* k_table = flaw == "k by other tables" ? tables(sketch, positions, heads.rotated) : table;
  Value* k_rotated = rotated(sketch, heads, k, heads.kv_heads, k_table,
                             flaw == "k in another layout" ? !heads.interleaved : heads.interleaved);

  // All of these may be read elsewhere; a norm or linear of q is no trouble, of x one.
  sketch.offer(x, {"linear"});
  if (sketch.random().chance(0.3)) sketch.offer(q);
  sketch.offer(v, {"slice"});  // a piece of v alone would make the linear as narrow as the piece
  sketch.offer(q_rotated);
  sketch.offer(k_rotated);
  plant.live.insert(plant.live.end(), {q_rotated, k_rotated, v});
  return plant;
}

}  // namespace atb::random_graphs
