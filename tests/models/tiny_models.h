// SPDX-License-Identifier: Apache-2.0
// Tiny llama models with fixed random weights, written as a Hugging Face directory or as a GGUF file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "frontends/file_writers.h"

namespace atb::testing {

struct TinyTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// What is written; tests change fields, or add and erase tensors, before they write.
struct TinyLlama {
  int64_t vocab = 32, hidden = 32, layers = 2, heads = 4, kv_heads = 2, head_dim = 8, ff = 64, context = 64;
  bool tied = true;
  std::map<std::string, TinyTensor> tensors;        // under Hugging Face names; made by fill()
  std::map<std::string, std::string> extra_config;  // raw JSON values, added to config.json or replacing its fields

  TinyLlama& fill(uint32_t seed = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 0.5f);
    const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = normal(random);
      tensors[name] = {std::move(shape), std::move(values)};
    };
    add("model.embed_tokens.weight", {vocab, hidden});
    add("model.norm.weight", {hidden});
    for (int64_t i = 0; i < layers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      add(layer + "input_layernorm.weight", {hidden});
      add(layer + "self_attn.q_proj.weight", {heads * head_dim, hidden});
      add(layer + "self_attn.k_proj.weight", {kv_heads * head_dim, hidden});
      add(layer + "self_attn.v_proj.weight", {kv_heads * head_dim, hidden});
      add(layer + "self_attn.o_proj.weight", {hidden, heads * head_dim});
      add(layer + "post_attention_layernorm.weight", {hidden});
      add(layer + "mlp.gate_proj.weight", {ff, hidden});
      add(layer + "mlp.up_proj.weight", {ff, hidden});
      add(layer + "mlp.down_proj.weight", {hidden, ff});
    }
    if (!tied) add("lm_head.weight", {vocab, hidden});
    return *this;
  }

  std::string config_json() const {
    std::map<std::string, std::string> fields = {
        {"architectures", "[\"LlamaForCausalLM\"]"},
        {"model_type", "\"llama\""},
        {"vocab_size", std::to_string(vocab)},
        {"hidden_size", std::to_string(hidden)},
        {"num_hidden_layers", std::to_string(layers)},
        {"num_attention_heads", std::to_string(heads)},
        {"num_key_value_heads", std::to_string(kv_heads)},
        {"head_dim", std::to_string(head_dim)},
        {"intermediate_size", std::to_string(ff)},
        {"rms_norm_eps", "1e-5"},
        {"max_position_embeddings", std::to_string(context)},
        {"rope_theta", "10000.0"},
        {"hidden_act", "\"silu\""},
        {"tie_word_embeddings", tied ? "true" : "false"},
    };
    for (const auto& [key, value] : extra_config) fields[key] = value;
    std::string text;
    for (const auto& [key, value] : fields) text += (text.empty() ? "{\"" : ", \"") + key + "\": " + value;
    return text + "}";
  }

  std::string safetensors() const {
    SafetensorsWriter writer;
    for (const auto& [name, tensor] : tensors) writer.add(name, tensor.shape, tensor.values);
    return writer.bytes();
  }

  std::filesystem::path write_directory(const TempDir& dir) const {
    dir.write("config.json", config_json());
    dir.write("model.safetensors", safetensors());
    return dir.path();
  }

  GgufWriter gguf_header() const {
    GgufWriter writer;
    writer.text("general.architecture", "llama").u32("llama.block_count", static_cast<uint32_t>(layers));
    writer.u32("llama.context_length", static_cast<uint32_t>(context));
    writer.u32("llama.embedding_length", static_cast<uint32_t>(hidden));
    writer.u32("llama.feed_forward_length", static_cast<uint32_t>(ff));
    writer.u32("llama.attention.head_count", static_cast<uint32_t>(heads));
    writer.u32("llama.attention.head_count_kv", static_cast<uint32_t>(kv_heads));
    writer.u32("llama.attention.key_length", static_cast<uint32_t>(head_dim));
    writer.u32("llama.attention.value_length", static_cast<uint32_t>(head_dim));
    writer.u32("llama.rope.dimension_count", static_cast<uint32_t>(head_dim));
    writer.f32("llama.rope.freq_base", 10000.0f).f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    return writer;
  }

  // Adds all tensors under GGUF names, the rows of q and k interleaved as converters of the format write them. Matrices
  // are encoded as `encoding` ("q8_0", ...) where it is given.
  void add_gguf_tensors(GgufWriter& writer, GgufId type = GgufId::kF32, const std::string& encoding = {}) const {
    for (const auto& [name, tensor] : tensors) {
      TinyTensor stored = tensor;
      if (name.find("q_proj") != std::string::npos) stored.values = interleaved(tensor, heads);
      if (name.find("k_proj") != std::string::npos) stored.values = interleaved(tensor, kv_heads);
      if (encoding.empty() || tensor.shape.size() < 2) {
        writer.f32_tensor(gguf_name(name), stored.shape, stored.values);
      } else {
        writer.encoded_tensor(gguf_name(name), stored.shape, type, encoding, stored.values);
      }
    }
  }

  std::filesystem::path write_gguf(const TempDir& dir, GgufId type = GgufId::kF32,
                                   const std::string& encoding = {}) const {
    GgufWriter writer = gguf_header();
    add_gguf_tensors(writer, type, encoding);
    return dir.write("model.gguf", writer.bytes());
  }

  static std::string gguf_name(std::string name) {
    const std::pair<const char*, const char*> parts[] = {
        {"model.layers.", "blk."},        {"model.embed_tokens", "token_embd"},
        {"model.norm", "output_norm"},    {"lm_head", "output"},
        {"input_layernorm", "attn_norm"}, {"post_attention_layernorm", "ffn_norm"},
        {"self_attn.q_proj", "attn_q"},   {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},   {"self_attn.o_proj", "attn_output"},
        {"mlp.gate_proj", "ffn_gate"},    {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
    };
    for (const auto& [from, to] : parts) {
      if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, std::strlen(from), to);
    }
    return name;
  }

 private:
  // Row i + half * h of a head goes to row 2 i + h.
  static std::vector<float> interleaved(const TinyTensor& tensor, int64_t head_count) {
    const int64_t rows = tensor.shape[0];
    const int64_t width = static_cast<int64_t>(tensor.values.size()) / rows;
    const int64_t head = rows / head_count, half = head / 2;
    std::vector<float> out(tensor.values.size());
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t in_head = row % head;
      const int64_t to = row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
      std::copy_n(tensor.values.begin() + row * width, width, out.begin() + to * width);
    }
    return out;
  }
};

}  // namespace atb::testing
