// SPDX-License-Identifier: Apache-2.0
// A tiny decoder in the spelling that exported PyTorch graphs have: heads before tokens, positions and masks as integer
// arithmetic, rotary embedding by slices and concat, repeated key heads; with knobs for what families do otherwise.
#pragma once

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"
#include "tiny_llama.h"

namespace atb::test {

struct ExportedConfig {
  int layers = 1;
  int64_t hidden = 24, vocab = 29, heads = 4, kv_heads = 2, head_dim = 8, rotary_dim = 8;
  // halves: x cos + rotate_half(x) sin; pairs: the same on neighbours; parts: (x1 cos - x2 sin, x2 cos + x1 sin).
  std::string rotary = "halves";
  std::string tables = "computed";  // cached: constants [:T]; taken: rows of constants by position
  std::string head_norm = "none";   // split: before heads and tokens change places; turned: after; flat: of all heads
  std::string fill = "-inf";        // min: the smallest f32
  bool padding = false;             // an input attention_mask
  int64_t window = 0;
  double softcap = 0;
  double attention_scaling = 1;
  bool learned_positions = false;  // cumsum of ones, as OPT
  bool flat_rows = false;          // linears on [B * T, ..], as GPT-2
};

class ExportedDecoder {
 public:
  explicit ExportedDecoder(const ExportedConfig& config)
      : c_(config), graph_(std::make_unique<Graph>("exported")), b_(*graph_), random_(11) {}

  std::unique_ptr<Graph> build() {
    Value* ids = graph_->add_input("input_ids", {DType::kI64, {batch_, tokens_}, nullptr});
    if (c_.padding) present_ = graph_->add_input("attention_mask", {DType::kI64, {batch_, tokens_}, nullptr});
    Value* x = b_("embedding", {ids, weight("embed.weight", {c_.vocab, c_.hidden}, 1)}, {}, "embed");
    positions_ = b_.reshape(arange(tokens_), {1, tokens_}, "position_ids");
    if (c_.learned_positions) x = b_("add", {x, learned_positions()});
    make_mask();
    if (c_.rotary_dim > 0) make_tables();
    for (int layer = 0; layer < c_.layers; ++layer) {
      b_.set_layer(layer);
      const std::string l = "l" + std::to_string(layer) + ".";
      b_.set_scope("model.layers." + std::to_string(layer) + ".self_attn");
      x = b_("add", {x, attention(norm(x, l + "norm"), l)}, {}, l + "sum");
    }
    b_.set_layer(-1);
    Value* logits = b_("linear", {norm(x, "norm"), weight("head.weight", {c_.vocab, c_.hidden}, 0.4F)}, {}, "logits");
    graph_->set_outputs({logits}, {"logits"});
    return std::move(graph_);
  }

 private:
  Value* weight(const std::string& name, std::vector<int64_t> shape, float scale, float offset = 0) {
    int64_t count = 1;
    for (int64_t extent : shape) count *= extent;
    return b_.constant(Constant::from_f32(name, std::move(shape), random_.vector(count, scale, offset)));
  }
  Value* integer(int64_t value) {
    std::vector<std::byte> bytes(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    return b_.constant(Constant::from_storage("int", DType::kI64, nullptr, {}, storage_from_bytes(bytes), 0));
  }
  Value* truth() {
    return b_.constant(
        Constant::from_storage("true", DType::kBool, nullptr, {}, storage_from_bytes({std::byte{1}}), 0));
  }
  Value* norm(Value* x, const std::string& name) {
    return b_("rms_norm", {x, weight(name + ".weight", {x->dim(-1).constant()}, 0.3F, 1)}, {{"eps", 1e-5}}, name);
  }
  Value* cast(Value* x, const char* dtype) { return b_("cast", {x}, {{"dtype", std::string(dtype)}}); }
  Value* broadcast(Value* x, Shape shape) { return b_("broadcast", {x}, {{"shape", std::move(shape)}}); }
  Value* slice(Value* x, int64_t axis, Dim begin, Dim end, int64_t step = 1) {
    return b_("slice", {x}, {{"axis", axis}, {"bounds", Shape{begin, end}}, {"step", step}});
  }
  Value* concat(std::vector<Value*> parts, int64_t axis) { return b_("concat", std::move(parts), {{"axis", axis}}); }
  Value* arange(const Dim& length) {
    return b_("add", {cast(b_("iota", {}, {{"shape", Shape{length}}}), "i64"), integer(0)});
  }

  Value* learned_positions() {
    Value* ones = broadcast(b_.scalar(1), {batch_, tokens_});
    Value* counted = b_("mul", {b_("cumsum", {ones}, {{"axis", int64_t{1}}}), ones});
    Value* positions = b_("add", {cast(b_("sub", {counted, b_.scalar(1)}), "i64"), integer(2)});
    return b_("embedding", {positions, weight("positions.weight", {18, c_.hidden}, 1)});
  }

  // [B, 1, T, T]: key <= query, in one packed sequence or where the key is no padding, at most `window` back.
  void make_mask() {
    Value* sequences = b_.reshape(arange(batch_), {batch_, 1, 1, 1});
    Value* queries = b_.reshape(arange(tokens_), {1, 1, tokens_, 1});
    Value* keys = b_.reshape(arange(tokens_), {1, 1, 1, tokens_});
    Value* seen = truth();
    Value* all = broadcast(positions_, {batch_, tokens_});
    Value* query_positions = b_("take", {all, sequences, queries});
    Value* key_positions = b_("take", {all, sequences, keys});
    if (c_.window > 0) {
      Value* oldest = b_("sub", {query_positions, integer(c_.window)});
      seen = b_("logical_and", {seen, b_("less", {oldest, key_positions})});
    }
    seen = b_("logical_and", {seen, b_("less_equal", {key_positions, query_positions})}, {}, "causal");
    if (c_.padding) {
      seen = b_("logical_and", {seen, b_("take", {cast(present_, "bool"), sequences, keys})}, {}, "with_padding");
    } else {
      Value* before = b_("sub", {slice(all, 1, 0, 1), integer(1)});
      Value* whole = concat({before, all}, 1);
      Value* steps = b_("sub", {slice(whole, 1, 1, tokens_ + Dim(1)), slice(whole, 1, 0, tokens_)});
      Value* starts = b_("logical_not", {b_("equal", {steps, integer(1)})});
      Value* packed = b_("cumsum", {cast(starts, "i64")}, {{"axis", int64_t{1}}});
      Value* together = b_("equal", {b_("take", {packed, sequences, queries}), b_("take", {packed, sequences, keys})});
      seen = b_("logical_and", {seen, together});
    }
    seen = broadcast(seen, {batch_, 1, tokens_, tokens_});
    const double blocked = c_.fill == "min" ? std::numeric_limits<float>::lowest() : -INFINITY;
    mask_ = b_("where", {seen, b_.scalar(0), b_.scalar(blocked)}, {}, "mask");
  }

  std::vector<float> frequencies() const {
    std::vector<float> values;
    const auto width = static_cast<double>(c_.rotary_dim);
    for (int64_t i = 0; i < c_.rotary_dim; i += 2) {
      values.push_back(static_cast<float>(std::pow(100.0, -static_cast<double>(i) / width)));
    }
    return values;
  }

  void make_tables() {
    if (c_.tables == "computed") return compute_tables();
    cos_ = table_rows("cos", [](float angle) { return std::cos(angle); });
    sin_ = table_rows("sin", [](float angle) { return std::sin(angle); });
  }

  // [18, R] in a constant, in the order of features that the spelling has.
  template <class Function>
  Value* table_rows(const std::string& name, Function function) {
    const std::vector<float> w = frequencies();
    const size_t width = c_.rotary == "parts" ? w.size() : 2 * w.size();
    std::vector<float> values;
    for (int position = 0; position < 18; ++position) {
      for (size_t i = 0; i < width; ++i) {
        const float angle = static_cast<float>(position) * w[c_.rotary == "pairs" ? i / 2 : i % w.size()];
        values.push_back(function(angle) * static_cast<float>(c_.attention_scaling));
      }
    }
    const auto columns = static_cast<int64_t>(width);
    Value* table = b_.constant(Constant::from_f32(name + "_cached", {18, columns}, values));
    Value* rows = c_.tables == "cached" ? slice(table, 0, 0, tokens_) : b_("take", {table, positions_});
    return b_.reshape(rows, {1, 1, tokens_, columns}, name + "_table");
  }

  void compute_tables() {
    const std::vector<float> values = frequencies();
    const auto count = static_cast<int64_t>(values.size());
    Value* inv_freq = b_.constant(Constant::from_f32("inv_freq", {count}, values));
    Value* angles = b_("mul", {cast(b_.reshape(positions_, {1, tokens_, 1}), "f32"), inv_freq}, {}, "freqs");
    if (c_.rotary == "halves") angles = concat({angles, angles}, 2);
    if (c_.rotary == "pairs") {
      Value* twice = broadcast(b_.reshape(angles, {1, tokens_, count, 1}), {1, tokens_, count, 2});
      angles = b_.reshape(twice, {1, tokens_, 2 * count});
    }
    const auto table = [&](const char* function) {
      Value* x = b_("mul", {b_(function, {angles}), b_.scalar(c_.attention_scaling)});
      return b_.reshape(x, {1, 1, tokens_, x->dim(-1)}, std::string(function) + "_table");
    };
    cos_ = table("cos");
    sin_ = table("sin");
  }

  Value* rotate(Value* x) {
    const int64_t r = c_.rotary_dim;
    Value* part = r == c_.head_dim ? x : slice(x, 3, 0, r);
    Value* result = nullptr;
    if (c_.rotary == "pairs") {
      Shape apart = x->shape();
      apart.back() = r / 2;
      apart.emplace_back(1);
      Value* even = b_.reshape(slice(part, 3, 0, r - 1, 2), apart);
      Value* odd = b_.reshape(slice(part, 3, 1, r, 2), apart);
      Value* turned = b_.reshape(concat({b_("neg", {odd}), even}, 4), part->shape());
      result = b_("add", {b_("mul", {part, cos_}), b_("mul", {turned, sin_})});
    } else {
      Value* first = slice(part, 3, 0, r / 2);
      Value* second = slice(part, 3, r / 2, r);
      if (c_.rotary == "halves") {
        Value* turned = concat({b_("neg", {second}), first}, 3);
        result = b_("add", {b_("mul", {part, cos_}), b_("mul", {turned, sin_})});
      } else {
        Value* a = b_("sub", {b_("mul", {first, cos_}), b_("mul", {second, sin_})});
        Value* b = b_("add", {b_("mul", {second, cos_}), b_("mul", {first, sin_})});
        result = concat({a, b}, 3);
      }
    }
    return r == c_.head_dim ? result : concat({result, slice(x, 3, r, c_.head_dim)}, 3);
  }

  Value* heads(Value* x, const std::string& name, int64_t count, bool rotated) {
    const int64_t width = count * c_.head_dim;
    x = b_("linear", {x, weight(name + ".weight", {width, c_.hidden}, 0.6F)}, {}, name);
    if (rotated && c_.head_norm == "flat") x = norm(x, name + "_norm");
    x = b_.reshape(x, {batch_, tokens_, count, c_.head_dim});
    if (rotated && c_.head_norm == "split") x = norm(x, name + "_norm");
    x = b_.transpose(x, {0, 2, 1, 3});
    if (rotated && c_.head_norm == "turned") x = norm(x, name + "_norm");
    return rotated && c_.rotary_dim > 0 ? rotate(x) : x;
  }

  Value* repeated(Value* x) {
    const int64_t group = c_.heads / c_.kv_heads;
    if (group == 1) return x;
    x = b_.reshape(x, {batch_, c_.kv_heads, 1, tokens_, c_.head_dim});
    x = broadcast(x, {batch_, c_.kv_heads, group, tokens_, c_.head_dim});
    return b_.reshape(x, {batch_, c_.heads, tokens_, c_.head_dim});
  }

  Value* attention(Value* x, const std::string& l) {
    Value* q = heads(x, l + "q", c_.heads, true);
    Value* k = repeated(heads(x, l + "k", c_.kv_heads, true));
    Value* v = repeated(heads(x, l + "v", c_.kv_heads, false));
    Value* scores = b_("matmul", {q, b_.transpose(k, {0, 1, 3, 2})}, {}, l + "scores");
    scores = b_("mul", {scores, b_.scalar(1 / std::sqrt(static_cast<double>(c_.head_dim)))}, {}, l + "scaled");
    if (c_.softcap > 0) {
      Value* bounded = b_("tanh", {b_("div", {scores, b_.scalar(c_.softcap)})});
      scores = b_("mul", {bounded, b_.scalar(c_.softcap)}, {}, l + "capped");
    }
    scores = b_("add", {scores, mask_}, {}, l + "masked");
    Value* out = b_("matmul", {b_("softmax", {scores}, {{"axis", int64_t{3}}}, l + "probs"), v}, {}, l + "context");
    Shape rows = {batch_, tokens_, c_.heads * c_.head_dim};
    if (c_.flat_rows) rows = {batch_ * tokens_, c_.heads * c_.head_dim};
    out = b_.reshape(b_.transpose(out, {0, 2, 1, 3}), std::move(rows));
    out = b_("linear", {out, weight(l + "o.weight", {c_.hidden, c_.heads * c_.head_dim}, 0.4F)}, {}, l + "o");
    return b_.reshape(out, {batch_, tokens_, c_.hidden});
  }

  ExportedConfig c_;
  std::unique_ptr<Graph> graph_;
  Builder b_;
  Random random_;
  Dim batch_ = Dim::symbol("B", 1, 64);
  Dim tokens_ = Dim::symbol("T", 1, 512);
  Value* present_ = nullptr;
  Value* positions_ = nullptr;
  Value* mask_ = nullptr;
  Value* cos_ = nullptr;
  Value* sin_ = nullptr;
};

inline std::unique_ptr<Graph> exported_decoder(const ExportedConfig& config = {}) {
  return ExportedDecoder(config).build();
}

}  // namespace atb::test
