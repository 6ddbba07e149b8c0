// SPDX-License-Identifier: Apache-2.0
// The llama family: Llama 1 to 3, SmolLM2, TinyLlama, and Mistral without a sliding window. Pre-norm decoder layers of
// grouped-query attention with rotary positions, and a gated feed-forward.
#include <cmath>
#include <string>

#include "blocks/attention.h"
#include "core/error.h"
#include "ir/builder.h"
#include "models/load/config_json.h"
#include "models/load/gguf_config.h"
#include "models/load/limits.h"
#include "models/load/rope.h"
#include "models/load/weights.h"
#include "models/model.h"

namespace atb {
namespace {

const std::vector<WeightName> kWeightNames = {
    {"embed", "model.embed_tokens", "token_embd"},
    {"norm", "model.norm", "output_norm"},
    {"head", "lm_head", "output"},
    // In a layer.
    {"attn_norm", "input_layernorm", "attn_norm"},
    {"q", "self_attn.q_proj", "attn_q"},
    {"k", "self_attn.k_proj", "attn_k"},
    {"v", "self_attn.v_proj", "attn_v"},
    {"o", "self_attn.o_proj", "attn_output"},
    {"ffn_norm", "post_attention_layernorm", "ffn_norm"},
    {"gate", "mlp.gate_proj", "ffn_gate"},
    {"up", "mlp.up_proj", "ffn_up"},
    {"down", "mlp.down_proj", "ffn_down"},
};

// --- Configuration

std::string activation_from_hf(const ConfigJson& config) {
  const std::string name = config.text_or("hidden_act", "silu");
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu") return "gelu_none";
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return "gelu_tanh";
  if (name == "relu") return "relu";
  config.unsupported("hidden_act",
                     "\"" + name + "\" is not supported; supported: silu, gelu, gelu_new, gelu_pytorch_tanh, relu");
}

bool is_mistral(const ConfigJson& config) { return config.text_or("model_type", "llama") == "mistral"; }

void refuse_unsupported(const ConfigJson& config) {
  if (config.has("quantization_config")) {
    config.unsupported("quantization_config", "is not supported; use the unquantized model, or a GGUF file");
  }
  // Mistral's class has a window of 4096 unless the file says null.
  if (is_mistral(config) && (config.has("sliding_window") || !config.has_key("sliding_window"))) {
    config.unsupported("sliding_window", "must be null: attention windows are not supported");
  }
}

ModelConfig config_from_hf(const ConfigJson& config) {
  refuse_unsupported(config);
  ModelConfig result;
  result.vocab_size = config.size("vocab_size");
  result.hidden_size = config.size("hidden_size");
  result.layers = config.size("num_hidden_layers", kMaxLayers);
  result.heads = config.size("num_attention_heads");
  result.kv_heads =
      is_mistral(config) ? config.size("num_key_value_heads") : config.size_or("num_key_value_heads", result.heads);
  if (result.heads % result.kv_heads != 0) {
    config.fail("num_attention_heads", "is " + std::to_string(result.heads) +
                                           ", must be a multiple of num_key_value_heads " +
                                           std::to_string(result.kv_heads));
  }
  if (!config.has("head_dim") && result.hidden_size % result.heads != 0) {
    config.fail("hidden_size", "is " + std::to_string(result.hidden_size) +
                                   ", must be a multiple of num_attention_heads " + std::to_string(result.heads) +
                                   " where head_dim is not given");
  }
  result.head_dim = config.size_or("head_dim", result.hidden_size / result.heads, kMaxHeadDim);
  if (result.head_dim % 2 != 0) config.fail("head_dim", "is " + std::to_string(result.head_dim) + ", must be even");
  result.intermediate_size = config.size("intermediate_size");
  result.norm_eps = config.positive_or("rms_norm_eps", 1e-6);
  result.context_length = config.size_or("max_position_embeddings", 2048);
  result.rope = rope_from_hf(config, result.head_dim, result.context_length);
  result.tied_head = config.flag_or("tie_word_embeddings", false);
  result.attention_bias = config.flag_or("attention_bias", false);
  result.mlp_bias = config.flag_or("mlp_bias", false);
  result.activation = activation_from_hf(config);
  result.bos_ids = config.ids_or("bos_token_id", {1});
  result.eos_ids = config.ids_or("eos_token_id", {2});
  return result;
}

// Keys that change the mathematics in a way this family does not have.
void refuse_unsupported(const GgufConfig& config) {
  for (const char* key : {"expert_count", "attention.sliding_window"}) {
    const auto value = config.file().metadata.integer(config.key(key));
    if (value && *value != 0) config.unsupported(key, "= " + std::to_string(*value) + " is not supported");
  }
  for (const char* key : {"attention.scale", "attn_logit_softcapping", "final_logit_softcapping", "logit_scale",
                          "embedding_scale", "residual_scale"}) {
    if (config.has(key)) config.unsupported(key, "is not supported for this architecture");
  }
  if (!config.file().metadata.boolean(config.key("attention.causal")).value_or(true)) {
    config.unsupported("attention.causal", "= false is not supported");
  }
}

int64_t vocab_of(const GgufConfig& config) {
  const std::vector<int64_t>* shape = find_shape(config.file(), "token_embd.weight");
  require(shape != nullptr && shape->size() == 2, Code::kNotFound, "[gguf] ", config.file().file->path().string(),
          ": no matrix token_embd.weight");
  return shape->front();
}

int64_t head_dim_of(const GgufConfig& config, const ModelConfig& result) {
  if (!config.has("attention.key_length") && result.hidden_size % result.heads != 0) {
    config.fail("embedding_length", "is " + std::to_string(result.hidden_size) + ", must be a multiple of the " +
                                        std::to_string(result.heads) +
                                        " heads where attention.key_length is not given");
  }
  const int64_t head_dim = config.size_or("attention.key_length", result.hidden_size / result.heads, kMaxHeadDim);
  if (config.size_or("attention.value_length", head_dim, kMaxHeadDim) != head_dim) {
    config.unsupported("attention.value_length", "must equal attention.key_length " + std::to_string(head_dim));
  }
  if (head_dim % 2 != 0) config.fail("attention.key_length", "is " + std::to_string(head_dim) + ", must be even");
  return head_dim;
}

ModelConfig config_from_gguf(const GgufConfig& config) {
  refuse_unsupported(config);
  ModelConfig result;
  result.vocab_size = vocab_of(config);
  result.hidden_size = config.size("embedding_length", kMaxConfigSize);
  result.layers = config.size("block_count", kMaxLayers);
  result.heads = config.size("attention.head_count", kMaxConfigSize);
  result.kv_heads = config.size_or("attention.head_count_kv", result.heads, kMaxConfigSize);
  if (result.heads % result.kv_heads != 0) {
    config.fail("attention.head_count", "is " + std::to_string(result.heads) +
                                            ", must be a multiple of attention.head_count_kv " +
                                            std::to_string(result.kv_heads));
  }
  result.head_dim = head_dim_of(config, result);
  result.intermediate_size = config.size("feed_forward_length", kMaxConfigSize);
  result.norm_eps = config.positive("attention.layer_norm_rms_epsilon");
  result.context_length = config.size("context_length", kMaxConfigSize);
  result.rope = rope_from_gguf(config, result.head_dim);
  if (result.rope.rotary_dim % 2 != 0) {
    config.fail("rope.dimension_count", "is " + std::to_string(result.rope.rotary_dim) + ", must be even");
  }
  const NamedTensors& tensors = config.file().tensors;
  result.tied_head = !tensors.contains("output.weight");
  result.attention_bias = tensors.contains("blk.0.attn_q.bias");
  result.mlp_bias = tensors.contains("blk.0.ffn_gate.bias");
  result.activation = "silu";
  config.add_id("tokenizer.ggml.bos_token_id", result.bos_ids);
  for (const char* key : {"eos", "eot", "eom"}) {
    config.add_id("tokenizer.ggml." + std::string(key) + "_token_id", result.eos_ids);
  }
  return result;
}

// --- Weights

// GGUF files hold the rotated rows of each head interleaved, (2j, 2j + 1) for pair j; graphs have them half-split,
// (j, j + R/2), as Hugging Face files do. Rows past the rotated ones stay.
ConstantRef half_split_rows(const ConstantRef& weight, int64_t heads, const ModelConfig& config) {
  const int64_t half = config.rope.rotary_dim / 2;
  std::vector<int32_t> map(static_cast<size_t>(heads * config.head_dim));
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < config.head_dim; ++i) {
      const int64_t from = i >= 2 * half ? i : i < half ? 2 * i : 2 * (i - half) + 1;
      map[static_cast<size_t>(head * config.head_dim + i)] = static_cast<int32_t>(head * config.head_dim + from);
    }
  }
  return Constant::permute_rows(weight, std::move(map));
}

// What the head multiplies with: the embedding where tied, unless the file stores another matrix, which then is used.
ConstantRef head_weight(const ModelConfig& config, Weights& weights, const ConstantRef& embed) {
  const std::vector<int64_t> shape = {config.vocab_size, config.hidden_size};
  if (!config.tied_head) return weights.take("head", shape);
  if (weights.format() == WeightFormat::kAbsent || !weights.has("head")) return renamed(embed, "head.weight");
  const ConstantRef stored = weights.take("head", shape);
  if (same_bytes(*stored, *embed)) return renamed(embed, "head.weight");
  weights.warn("tie_word_embeddings is true, but " + weights.file_name("head") +
               " is stored and differs from the embedding; the stored one is used");
  return stored;
}

// --- Graph

class LlamaGraph {
 public:
  LlamaGraph(const ModelConfig& config, Weights& weights)
      : c_(config), weights_(weights), graph_(std::make_unique<Graph>(config.family)), b_(*graph_) {}

  std::unique_ptr<Graph> build() {
    const Dim batch = Dim::symbol("B", 1, kMaxBatch);
    tokens_ = Dim::symbol("T", 1, c_.context_length);
    batch_ = batch;
    Value* ids = graph_->add_input("ids", Type{DType::kI32, {batch, tokens_}});
    const std::vector<int64_t> vocab_shape = {c_.vocab_size, c_.hidden_size};
    b_.set_scope("model.embed_tokens");
    Value* x = b_("embedding", {ids, b_.constant(weights_.take_table("embed", vocab_shape))}, {}, "embed");
    make_shared_values();
    for (int layer = 0; layer < static_cast<int>(c_.layers); ++layer) x = add_layer(x, layer);
    b_.set_layer(-1);
    b_.set_scope("model.norm");
    x = norm(x, "norm");
    b_.set_scope("lm_head");
    const ConstantRef head = head_weight(c_, weights_, weights_.take("embed", vocab_shape));
    Value* logits = b_("linear", {x, b_.constant(head)}, {}, "logits");
    graph_->set_outputs({logits}, {"logits"});
    return std::move(graph_);
  }

 private:
  std::string named(std::string_view name) const { return prefix_ + std::string(name); }

  // Rotary tables, mask and scale, used by every layer.
  void make_shared_values() {
    b_.set_scope("model.rotary_emb");
    const std::vector<float> frequencies = rope_frequencies(c_.rope);
    Value* inv_freq =
        b_.constant(Constant::from_f32("rope.inv_freq", {static_cast<int64_t>(frequencies.size())}, frequencies));
    Value* positions = b_("iota", {}, {{"shape", Shape{tokens_}}}, "pos");
    Node* table = b_.node("rotary_table", {positions, inv_freq}, {}, "cos");
    cos_ = table->output(0);
    sin_ = table->output(1);
    graph_->rename(sin_, "sin");
    b_.set_scope("model");
    mask_ = causal_mask(b_, positions, positions);
    scale_ = named_scalar(b_, "scale", 1.0 / std::sqrt(static_cast<double>(c_.head_dim)));
  }

  Value* norm(Value* x, std::string_view name) {
    return b_("rms_norm", {x, b_.constant(weights_.take(name, {c_.hidden_size}, layer_))}, {{"eps", c_.norm_eps}},
              named(name == "norm" ? "final_norm" : name));
  }

  Value* linear(Value* x, std::string_view name, int64_t out, int64_t in, bool has_bias) {
    ConstantRef weight = weights_.take(name, {out, in}, layer_);
    ConstantRef bias = weights_.take_bias(name, out, layer_, has_bias);
    if (weights_.format() == WeightFormat::kGguf && (name == "q" || name == "k")) {
      weight = half_split_rows(weight, out / c_.head_dim, c_);
      if (bias) bias = half_split_rows(bias, out / c_.head_dim, c_);
    }
    std::vector<Value*> inputs = {x, b_.constant(weight)};
    if (bias) inputs.push_back(b_.constant(bias));
    return b_("linear", std::move(inputs), {}, named(name));
  }

  Value* add_layer(Value* x, int layer) {
    layer_ = layer;
    prefix_ = "layers." + std::to_string(layer) + ".";
    b_.set_layer(layer);
    const std::string scope = "model.layers." + std::to_string(layer);
    b_.set_scope(scope + ".self_attn");
    x = b_("add", {x, attention(norm(x, "attn_norm"))}, {}, named("attn_sum"));
    b_.set_scope(scope + ".mlp");
    x = b_("add", {x, feed_forward(norm(x, "ffn_norm"))}, {}, named("sum"));
    layer_ = -1;
    prefix_.clear();
    return x;
  }

  Value* attention(Value* x) {
    const int64_t d = c_.head_dim, kv = c_.kv_heads;
    const auto project = [&](const char* name, int64_t heads) {
      Value* rows = linear(x, name, heads * d, c_.hidden_size, c_.attention_bias);
      return b_.reshape(rows, {batch_, tokens_, heads, d}, named(std::string(name) + "_heads"));
    };
    Value* q = project("q", c_.heads);
    Value* k = project("k", kv);
    Value* v = project("v", kv);
    q = b_("rotary", {q, cos_, sin_}, {}, named("q_rot"));
    k = b_("rotary", {k, cos_, sin_}, {}, named("k_rot"));
    Value* out = plain_attention(b_, q, k, v, {.scale = scale_, .mask = mask_, .prefix = prefix_});
    return linear(out, "o", c_.hidden_size, c_.heads * d, c_.attention_bias);
  }

  Value* activate(Value* x) {
    if (c_.activation == "gelu_none") return b_("gelu", {x}, {{"approximate", std::string("none")}}, named("act"));
    if (c_.activation == "gelu_tanh") return b_("gelu", {x}, {{"approximate", std::string("tanh")}}, named("act"));
    return b_(c_.activation, {x}, {}, named("act"));
  }

  Value* feed_forward(Value* x) {
    Value* gate = linear(x, "gate", c_.intermediate_size, c_.hidden_size, c_.mlp_bias);
    Value* up = linear(x, "up", c_.intermediate_size, c_.hidden_size, c_.mlp_bias);
    Value* gated = b_("mul", {activate(gate), up}, {}, named("gated"));
    return linear(gated, "down", c_.hidden_size, c_.intermediate_size, c_.mlp_bias);
  }

  const ModelConfig& c_;
  Weights& weights_;
  std::unique_ptr<Graph> graph_;
  Builder b_;
  Dim batch_ = 1, tokens_ = 1;
  Value *cos_ = nullptr, *sin_ = nullptr, *mask_ = nullptr, *scale_ = nullptr;
  int layer_ = -1;
  std::string prefix_;
};

}  // namespace

void register_model_llama(ModelRegistry& registry) {
  ModelFamily family;
  family.name = "llama";
  family.hf_architectures = {"LlamaForCausalLM", "MistralForCausalLM"};
  family.hf_model_types = {"llama", "mistral"};
  family.gguf_architectures = {"llama"};
  family.weight_names = kWeightNames;
  family.config_from_hf = config_from_hf;
  family.config_from_gguf = config_from_gguf;
  family.build = [](const ModelConfig& config, Weights& weights) { return LlamaGraph(config, weights).build(); };
  registry.add(std::move(family));
}

}  // namespace atb
