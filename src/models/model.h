// SPDX-License-Identifier: Apache-2.0
// Models: what a family is, what loading one gives. A family is one file of src/models.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "blocks/rotary.h"
#include "core/dtype.h"
#include "frontends/named_tensors.h"
#include "ir/graph.h"
#include "ir/kernel.h"

namespace atb {

class ConfigJson;
class GgufConfig;
class Weights;

// A checked configuration: all sizes positive, heads a multiple of kv_heads, every real number finite.
struct ModelConfig {
  std::string family;  // "llama"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  double norm_eps = 0.0;
  RopeConfig rope;
  bool tied_head = false;       // the head's weights are the embedding's
  bool attention_bias = false;  // biases of q, k, v, o
  bool mlp_bias = false;        // biases of gate, up, down
  std::string activation;       // silu, gelu_none, gelu_tanh or relu
  int64_t context_length = 0;
  std::vector<int64_t> bos_ids;
  std::vector<int64_t> eos_ids;  // any of them ends a generation
};

// A weight's short name (used in graphs), without layer prefix and ".weight" / ".bias", and its names in files.
struct WeightName {
  std::string_view name;  // "q"
  std::string_view hf;    // "self_attn.q_proj"
  std::string_view gguf;  // "attn_q"
};

// How one kind of architecture is read and built. Registered by `void register_model_<file>(ModelRegistry&)`.
struct ModelFamily {
  std::string name;
  std::vector<std::string> hf_architectures;    // config.json "architectures": LlamaForCausalLM
  std::vector<std::string> hf_model_types;      // config.json "model_type", where there are no architectures
  std::vector<std::string> gguf_architectures;  // general.architecture
  // Names of the weights in files; see models/load/weights.h.
  std::vector<WeightName> weight_names;
  std::function<ModelConfig(const ConfigJson&)> config_from_hf;
  std::function<ModelConfig(const GgufConfig&)> config_from_gguf;
  // The plain, cache-free graph: input ids i32[B, T], output logits [B, T, vocab].
  std::function<std::unique_ptr<Graph>(const ModelConfig&, Weights&)> build;
};

// All families of this build. Filled once by generated code.
class ModelRegistry {
 public:
  void add(ModelFamily family);  // kInternal on a duplicate name
  const ModelFamily* find(std::string_view name) const;
  const ModelFamily* find_hf(const std::vector<std::string>& architectures, const std::string& model_type) const;
  const ModelFamily* find_gguf(std::string_view architecture) const;
  const std::vector<ModelFamily>& all() const { return families_; }
  static const ModelRegistry& instance();

 private:
  std::vector<ModelFamily> families_;
};

struct LoadOptions {
  bool log_warnings = true;  // they are returned too
};

struct LoadedModel {
  std::filesystem::path path;
  std::string format;  // "gguf" or "safetensors"
  ModelConfig config;
  std::unique_ptr<Graph> graph;
  NamedTensors tensors;                             // all of the file, under the file's names
  std::vector<std::string> warnings;                // unused tensors, a head that differs from the embedding, ...
  Precision default_precision = Precision::kExact;  // fast if the file's matrices are quantized
  uint64_t weight_bytes = 0;                        // of the tensors in use, each counted once
};

// Loads a Hugging Face directory (config.json and safetensors) or a .gguf file; weights stay mapped, nothing is copied.
// kNotFound, kDataLoss, kInvalidArgument or kUnsupported with the file, the field or tensor, actual against expected.
LoadedModel load_model(const std::filesystem::path& path, const LoadOptions& options = {});

// A decoder graph made elsewhere: input ids [B, T] (an integer type), first output logits [B, T, V]. Sizes are read off
// the graph. kInvalidArgument where it has not that form, or `context_length` is none.
LoadedModel model_of_graph(std::unique_ptr<Graph> graph, int64_t context_length);

// Configuration alone, of a directory, a config.json or a .gguf file. Logs a warning where model_type and architectures
// contradict each other, as load_model does.
ModelConfig read_model_config(const std::filesystem::path& path);

struct GraphOptions {
  DType dtype = DType::kF32;  // of absent weights, and so of all activations
};

// The same graph with absent constants, for accounting without weights.
std::unique_ptr<Graph> build_graph(const ModelConfig& config, const GraphOptions& options = {});
// build_graph(read_model_config(path), options).
std::unique_ptr<Graph> build_from_config(const std::filesystem::path& path, const GraphOptions& options = {});

}  // namespace atb
