// SPDX-License-Identifier: Apache-2.0
// The llama graph: its one spelling, equal from both file kinds, and equal numbers against loops written down here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ir/op.h"
#include "models/graph_run.h"
#include "models/model.h"
#include "models/tiny_models.h"

namespace atb {
namespace {

using testing::GgufId;
using testing::outline;
using testing::reference_logits;
using testing::relative_difference;
using testing::TempDir;
using testing::TinyLlama;

const std::vector<int64_t> kIds = {3, 1, 4, 1, 5, 9, 2, 6};

// --- an independent forward pass, straight from the tensors

using Rows = std::vector<std::vector<double>>;

Rows times(const Rows& x, const testing::TinyTensor& w) {
  Rows out(x.size(), std::vector<double>(static_cast<size_t>(w.shape[0])));
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t n = 0; n < out[t].size(); ++n) {
      for (size_t k = 0; k < x[t].size(); ++k) out[t][n] += x[t][k] * w.values[n * x[t].size() + k];
    }
  }
  return out;
}

Rows rms_norm(const Rows& x, const testing::TinyTensor& w) {
  Rows out = x;
  for (auto& row : out) {
    double squares = 0;
    for (const double value : row) squares += value * value / static_cast<double>(row.size());
    for (size_t i = 0; i < row.size(); ++i) row[i] = row[i] / std::sqrt(squares + 1e-5) * w.values[i];
  }
  return out;
}

void rotate(Rows& x, size_t heads, size_t d) {
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t h = 0; h < heads; ++h) {
      for (size_t i = 0; i < d / 2; ++i) {
        const double angle =
            static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(d));
        double& a = x[t][h * d + i];
        double& b = x[t][h * d + i + d / 2];
        const double rotated = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = rotated;
      }
    }
  }
}

Rows attention(const Rows& q, const Rows& k, const Rows& v, size_t heads, size_t kv_heads, size_t d) {
  Rows out(q.size(), std::vector<double>(heads * d));
  for (size_t t = 0; t < q.size(); ++t) {
    for (size_t h = 0; h < heads; ++h) {
      const size_t kv = h / (heads / kv_heads);
      std::vector<double> weights;
      double sum = 0;
      for (size_t s = 0; s <= t; ++s) {
        double dot = 0;
        for (size_t i = 0; i < d; ++i) dot += q[t][h * d + i] * k[s][kv * d + i];
        weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(d))));
        sum += weights.back();
      }
      for (size_t s = 0; s <= t; ++s) {
        for (size_t i = 0; i < d; ++i) out[t][h * d + i] += weights[s] / sum * v[s][kv * d + i];
      }
    }
  }
  return out;
}

void add_to(Rows& x, const Rows& y) {
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
  }
}

std::vector<double> by_hand(const TinyLlama& m, const std::vector<int64_t>& ids) {
  const auto w = [&](const std::string& name) -> const testing::TinyTensor& { return m.tensors.at(name + ".weight"); };
  const auto heads = static_cast<size_t>(m.heads), kv = static_cast<size_t>(m.kv_heads),
             d = static_cast<size_t>(m.head_dim);
  Rows x;
  for (const int64_t id : ids) {
    const auto row = w("model.embed_tokens").values.begin() + id * m.hidden;
    x.emplace_back(row, row + m.hidden);
  }
  for (int64_t i = 0; i < m.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const Rows normed = rms_norm(x, w(layer + "input_layernorm"));
    Rows q = times(normed, w(layer + "self_attn.q_proj")), k = times(normed, w(layer + "self_attn.k_proj"));
    rotate(q, heads, d);
    rotate(k, kv, d);
    add_to(x, times(attention(q, k, times(normed, w(layer + "self_attn.v_proj")), heads, kv, d),
                    w(layer + "self_attn.o_proj")));
    const Rows second = rms_norm(x, w(layer + "post_attention_layernorm"));
    Rows gate = times(second, w(layer + "mlp.gate_proj"));
    const Rows up = times(second, w(layer + "mlp.up_proj"));
    for (size_t t = 0; t < gate.size(); ++t) {
      for (size_t f = 0; f < gate[t].size(); ++f) gate[t][f] *= up[t][f] / (1.0 + std::exp(-gate[t][f]));
    }
    add_to(x, times(gate, w(layer + "mlp.down_proj")));
  }
  std::vector<double> flat;
  for (const auto& row : times(rms_norm(x, w("model.norm")), w(m.tied ? "model.embed_tokens" : "lm_head"))) {
    flat.insert(flat.end(), row.begin(), row.end());
  }
  return flat;
}

TEST(Llama, NumbersEqualLoopsWrittenDown) {
  for (const bool tied : {true, false}) {
    TinyLlama model;
    model.tied = tied;
    model.fill();
    const TempDir dir;
    const LoadedModel loaded = load_model(model.write_directory(dir));
    EXPECT_LT(relative_difference(by_hand(model, kIds), reference_logits(*loaded.graph, kIds)), 1e-6);
  }
}

TEST(Llama, OneLayerIsSpeltAsAgreed) {
  TinyLlama model;
  model.layers = 1;
  const TempDir dir;
  const auto graph = build_from_config(dir.write("config.json", model.config_json()));
  std::vector<std::string> ops;
  int kernels = 0;
  for (const Node* node : graph->nodes()) {
    if (node->layer() != 0) continue;
    ops.push_back(node->op_name());
    kernels += node->op().is_view() ? 0 : 1;
  }
  const std::vector<std::string> expected = {
      "rms_norm", "linear",  "reshape",   "linear",  "reshape",   "linear",  "reshape",   "rotary",
      "rotary",   "reshape", "transpose", "reshape", "transpose", "reshape", "transpose", "matmul",
      "mul",      "add",     "softmax",   "matmul",  "transpose", "reshape", "linear",    "add",
      "rms_norm", "linear",  "linear",    "silu",    "mul",       "linear",  "add"};
  std::vector<std::string> sorted_ops = ops, sorted_expected = expected;
  std::sort(sorted_ops.begin(), sorted_ops.end());
  std::sort(sorted_expected.begin(), sorted_expected.end());
  EXPECT_EQ(sorted_ops, sorted_expected);
  EXPECT_EQ(kernels, 20);
  EXPECT_EQ(to_string(graph->find_input("ids")->shape()), "[B, T]");
  EXPECT_EQ(graph->output_names(), std::vector<std::string>{"logits"});
  EXPECT_EQ(to_string(graph->outputs()[0]->shape()), "[B, T, 32]");
}

TEST(Llama, BothFileKindsGiveOneGraphAndTheSameLogits) {
  TinyLlama model;
  model.fill();
  const TempDir dir;
  const LoadedModel hf = load_model(model.write_directory(dir));
  const LoadedModel gguf = load_model(model.write_gguf(dir));
  EXPECT_EQ(hf.format, "safetensors");
  EXPECT_EQ(gguf.format, "gguf");
  EXPECT_EQ(outline(*hf.graph), outline(*gguf.graph));
  EXPECT_EQ(reference_logits(*hf.graph, kIds), reference_logits(*gguf.graph, kIds));
  EXPECT_TRUE(hf.warnings.empty());
  EXPECT_TRUE(gguf.warnings.empty());
  EXPECT_EQ(hf.config.norm_eps, gguf.config.norm_eps);
  EXPECT_EQ(hf.weight_bytes, gguf.weight_bytes);
}

TEST(Llama, QuantizedFilesKeepTheirBlocksAndStayClose) {
  TinyLlama model;
  model.fill();
  const TempDir dir;
  const auto exact = reference_logits(*load_model(model.write_directory(dir)).graph, kIds);
  const LoadedModel loaded = load_model(model.write_gguf(dir, GgufId::kQ8_0, "q8_0"));
  EXPECT_EQ(loaded.default_precision, Precision::kFast);
  const auto constants = loaded.graph->constants();
  const auto q =
      std::find_if(constants.begin(), constants.end(), [](const Value* v) { return v->name() == "layers.0.q.weight"; });
  ASSERT_NE(q, constants.end());
  EXPECT_EQ((*q)->type().str(), "f32[32, 32] q8_0");
  EXPECT_LT(relative_difference(exact, reference_logits(*loaded.graph, kIds)), 0.2);
}

TEST(Llama, PartialRotaryOfGgufRotatesTheLeadingRows) {
  // Two files of one model: one declares rope.dimension_count 4 of 8 and has rows 0 to 3 of each head interleaved.
  TinyLlama model;
  model.fill();
  const TempDir dir;
  testing::GgufWriter writer = model.gguf_header();
  model.add_gguf_tensors(writer);
  std::string bytes = writer.bytes();
  const std::string key = "llama.rope.dimension_count";
  bytes[bytes.find(key) + key.size() + 4] = 4;
  const LoadedModel loaded = load_model(dir.write("m.gguf", bytes));
  EXPECT_EQ(loaded.config.rope.rotary_dim, 4);
  const auto constants = loaded.graph->constants();
  const auto find = [&](const char* name) {
    return *std::find_if(constants.begin(), constants.end(), [&](const Value* v) { return v->name() == name; });
  };
  EXPECT_EQ(find("rope.inv_freq")->type().str(), "f32[2]");
  // Graph rows 0..7 of a head are file rows 0, 2, 1, 3, 4, 5, 6, 7.
  const Constant& in_file = *loaded.tensors.at("blk.0.attn_k.weight");
  const Constant& in_graph = *find("layers.0.k.weight")->constant();
  const int64_t rows[] = {0, 2, 1, 3, 4, 5, 6, 7};
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(in_graph.row(i), in_file.row(i / 8 * 8 + rows[i % 8])) << i;
}

TEST(Llama, RopeFrequencyDivisorsOfGgufAreUsed) {
  TinyLlama model;
  model.fill();
  const TempDir dir;
  const auto plain = reference_logits(*load_model(model.write_gguf(dir)).graph, kIds);
  const auto with = [&](const std::vector<float>& divisors) {
    testing::GgufWriter writer = model.gguf_header();
    model.add_gguf_tensors(writer);
    writer.f32_tensor("rope_freqs.weight", {static_cast<int64_t>(divisors.size())}, divisors);
    return load_model(dir.write("m.gguf", writer.bytes()));
  };
  EXPECT_TRUE(with({1, 1, 1, 1}).warnings.empty());
  EXPECT_EQ(reference_logits(*with({1, 1, 1, 1}).graph, kIds), plain);
  EXPECT_GT(relative_difference(plain, reference_logits(*with({8, 8, 8, 8}).graph, kIds)), 0.01);
  EXPECT_ATB_ERROR(with({1, 1}), Code::kDataLoss, "rope_freqs.weight", "2", "4");
  EXPECT_ATB_ERROR(with({1, 1, 0, 1}), Code::kDataLoss, "rope_freqs.weight");
}

TEST(Llama, BiasesAreUsedOrNamed) {
  TinyLlama model;
  model.fill();
  const TempDir dir;
  const auto plain = reference_logits(*load_model(model.write_directory(dir)).graph, kIds);
  for (int64_t i = 0; i < model.layers; ++i) {
    for (const auto& [name, size] : std::map<std::string, int64_t>{{"q", 32}, {"k", 16}, {"v", 16}, {"o", 32}}) {
      std::vector<float> values;
      for (int64_t j = 0; j < size; ++j) values.push_back(0.1f * static_cast<float>(j));
      model.tensors["model.layers." + std::to_string(i) + ".self_attn." + name + "_proj.bias"] = {{size}, values};
    }
  }
  const LoadedModel ignored = load_model(model.write_directory(dir));
  ASSERT_EQ(ignored.warnings.size(), 1u);
  EXPECT_NE(ignored.warnings[0].find("8 tensors of the file are not used: model.layers.0.self_attn.k_proj.bias"),
            std::string::npos);
  EXPECT_EQ(reference_logits(*ignored.graph, kIds), plain);
  model.extra_config["attention_bias"] = "true";
  const auto biased = reference_logits(*load_model(model.write_directory(dir)).graph, kIds);
  EXPECT_GT(relative_difference(plain, biased), 0.01);
  EXPECT_EQ(reference_logits(*load_model(model.write_gguf(dir)).graph, kIds), biased);
  model.tensors.erase("model.layers.1.self_attn.o_proj.bias");
  EXPECT_ATB_ERROR(load_model(model.write_directory(dir)), Code::kNotFound, "model.layers.1.self_attn.o_proj.bias");
}

TEST(Llama, HalvesGiveF32Activations) {
  const TempDir dir;
  TinyLlama model;
  model.layers = 1;
  model.fill();
  std::string header, data;
  for (const auto& [name, tensor] : model.tensors) {
    std::string shape;
    for (const int64_t extent : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(extent);
    const size_t begin = data.size();
    for (const float value : tensor.values) data += testing::as_bytes(f32_to_bf16(value));
    header += (header.empty() ? "{\"" : ",\"") + name + R"(":{"dtype":"BF16","shape":[)" + shape +
              R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  dir.write("config.json", model.config_json());
  dir.write("model.safetensors", testing::safetensors_file(header + "}", data));
  const LoadedModel loaded = load_model(dir.path());
  EXPECT_EQ(loaded.default_precision, Precision::kExact);
  for (const Node* node : loaded.graph->nodes()) {
    if (is_float(node->output()->type().dtype)) {
      EXPECT_EQ(node->output()->type().dtype, DType::kF32) << node->name();
    }
  }
  for (auto& [name, tensor] : model.tensors) {
    for (float& value : tensor.values) value = bf16_to_f32(f32_to_bf16(value));
  }
  EXPECT_EQ(relative_difference(by_hand(model, kIds), reference_logits(*loaded.graph, kIds)) < 1e-6, true);
}

TEST(Llama, AccountingGraphHasTheAskedType) {
  TinyLlama model;
  const TempDir dir;
  const auto file = dir.write("config.json", model.config_json());
  const auto graph = build_from_config(file, {.dtype = DType::kF16});
  EXPECT_EQ(graph->outputs()[0]->type().dtype, DType::kF16);
  for (const Value* constant : graph->constants()) {
    const bool weight = constant->name().ends_with(".weight");
    EXPECT_EQ(constant->type().dtype, weight ? DType::kF16 : DType::kF32) << constant->name();
    EXPECT_EQ(constant->constant()->absent(), weight) << constant->name();
  }
  EXPECT_ATB_ERROR(build_from_config(file, {.dtype = DType::kI8}), Code::kInvalidArgument, "i8");
}

}  // namespace
}  // namespace atb
