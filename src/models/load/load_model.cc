// SPDX-License-Identifier: Apache-2.0
// load_model: files -> configuration and weights -> graph, with what is worth a warning.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "models/load/open.h"
#include "models/load/weights.h"
#include "models/model.h"

namespace atb {
namespace {

namespace fs = std::filesystem;

constexpr size_t kListedNames = 8;

// Stored by some exporters, computed by everyone; or read with the configuration.
bool harmless(const std::string& name) { return name.ends_with("rotary_emb.inv_freq") || name == "rope_freqs.weight"; }

void warn_unused(Weights& weights) {
  std::vector<std::string> names = weights.unused();
  names.erase(std::remove_if(names.begin(), names.end(), harmless), names.end());
  if (names.empty()) return;
  std::string text = std::to_string(names.size()) + " tensors of the file are not used: ";
  for (size_t i = 0; i < std::min(names.size(), kListedNames); ++i) text.append(i ? ", " : "").append(names[i]);
  if (names.size() > kListedNames) text += " and " + std::to_string(names.size() - kListedNames) + " more";
  weights.warn(text);
}

// Ids that the vocabulary does not have can never be sampled.
void drop_bad_ids(std::vector<int64_t>& ids, const char* name, const ModelConfig& config, Weights& weights) {
  const auto bad = [&](int64_t id) { return id >= config.vocab_size; };
  for (const int64_t id : ids) {
    if (bad(id)) {
      weights.warn(std::string(name) + " " + std::to_string(id) + " is outside the vocabulary of " +
                   std::to_string(config.vocab_size) + " and ignored");
    }
  }
  ids.erase(std::remove_if(ids.begin(), ids.end(), bad), ids.end());
}

LoadedModel finish(const ModelFamily& family, ModelConfig config, Weights weights, const LoadOptions& options) {
  LoadedModel model;
  model.graph = family.build(config, weights);
  drop_bad_ids(config.bos_ids, "bos_token_id", config, weights);
  drop_bad_ids(config.eos_ids, "eos_token_id", config, weights);
  warn_unused(weights);
  model.config = std::move(config);
  model.tensors = weights.tensors();
  model.default_precision = weights.any_quantized() ? Precision::kFast : Precision::kExact;
  model.weight_bytes = weights.used_bytes();
  model.warnings = weights.warnings();
  for (const std::string& warning : model.warnings) {
    if (options.log_warnings) log(LogLevel::kWarning, "load", warning);
  }
  return model;
}

// Every token needs a row of the embedding. Rows beyond the tokens are padding that some exporters add.
void check_vocabulary(const Gguf& file, const ModelConfig& config, Weights& weights) {
  const GgufArray* tokens = file.metadata.array("tokenizer.ggml.tokens");
  if (tokens == nullptr) return;
  const auto rows = static_cast<uint64_t>(config.vocab_size);
  require(tokens->count <= rows, Code::kDataLoss, "[gguf] ", file.file->path().string(), ": tokenizer.ggml.tokens has ",
          tokens->count, " tokens, but the embedding has ", rows, " rows; convert the model again");
  if (tokens->count < rows) {
    weights.warn("the embedding has " + std::to_string(rows) + " rows, but the tokenizer " +
                 std::to_string(tokens->count) + " tokens: ids from there on have no text");
  }
}

LoadedModel load_gguf(const fs::path& path, const LoadOptions& options) {
  const Gguf file = read_gguf(path);
  const ModelFamily& family = family_of(file);
  require_decodable(file);
  Weights weights(WeightFormat::kGguf, file.tensors, family.weight_names);
  ModelConfig config = config_of_gguf(family, file);
  check_vocabulary(file, config, weights);
  LoadedModel model = finish(family, std::move(config), std::move(weights), options);
  model.format = "gguf";
  return model;
}

LoadedModel load_directory(const fs::path& path, const LoadOptions& options) {
  const HfConfig hf = read_hf_config(path / "config.json");
  const ModelFamily& family = family_of(hf, path / "config.json");
  ModelConfig config = config_of_directory(family, hf, path);
  Weights weights(WeightFormat::kHf, read_safetensors_directory(path).tensors, family.weight_names);
  if (std::string text = contradiction(family, hf); !text.empty()) weights.warn(std::move(text));
  LoadedModel model = finish(family, std::move(config), std::move(weights), options);
  model.format = "safetensors";
  return model;
}

}  // namespace

LoadedModel load_model(const fs::path& path, const LoadOptions& options) {
  LoadedModel model = is_gguf_model(path) ? load_gguf(path, options) : load_directory(path, options);
  model.path = path;
  return model;
}

ModelConfig read_model_config(const fs::path& path) {
  if (path.extension() != ".json" && is_gguf_model(path)) {
    const Gguf file = read_gguf(path);
    return config_of_gguf(family_of(file), file);
  }
  const fs::path json = path.extension() == ".json" ? path : path / "config.json";
  const HfConfig hf = read_hf_config(json);
  const ModelFamily& family = family_of(hf, json);
  if (const std::string text = contradiction(family, hf); !text.empty()) log(LogLevel::kWarning, "load", text);
  return config_of_directory(family, hf, json.parent_path());
}

std::unique_ptr<Graph> build_graph(const ModelConfig& config, const GraphOptions& options) {
  const DType dtype = options.dtype;
  require(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16, Code::kInvalidArgument,
          "[model] graph dtype ", dtype_name(dtype), ", must be f32, f16 or bf16");
  const ModelFamily* family = ModelRegistry::instance().find(config.family);
  require(family != nullptr, Code::kInternal, "[model] no family ", config.family);
  Weights weights(dtype, family->weight_names);
  return family->build(config, weights);
}

std::unique_ptr<Graph> build_from_config(const fs::path& path, const GraphOptions& options) {
  return build_graph(read_model_config(path), options);
}

}  // namespace atb
