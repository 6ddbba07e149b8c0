// SPDX-License-Identifier: Apache-2.0
// The JSON of `atb inspect`.
#include "models/inspect.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "frontends/mapped_file.h"
#include "models/load/gguf_config.h"
#include "models/load/open.h"

namespace atb {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json config_json(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  Json rope_json = {{"type", rope.type}, {"theta", rope.theta}, {"rotary_dim", rope.rotary_dim}};
  if (rope.type == "llama3") {
    rope_json.update({{"factor", rope.factor},
                      {"low_freq_factor", rope.low_freq_factor},
                      {"high_freq_factor", rope.high_freq_factor},
                      {"original_context", rope.original_context}});
  }
  return {{"vocab_size", config.vocab_size},
          {"hidden_size", config.hidden_size},
          {"layers", config.layers},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"intermediate_size", config.intermediate_size},
          {"norm_eps", config.norm_eps},
          {"activation", config.activation},
          {"tied_head", config.tied_head},
          {"attention_bias", config.attention_bias},
          {"mlp_bias", config.mlp_bias},
          {"rope", rope_json},
          {"bos_ids", config.bos_ids},
          {"eos_ids", config.eos_ids}};
}

std::string type_name(const Constant& tensor) {
  return tensor.encoding() != nullptr ? tensor.encoding()->name : std::string(dtype_name(tensor.dtype()));
}

void add_tensors(const NamedTensors& tensors, const std::vector<GgufUndecodable>& undecodable, Json& out) {
  Json list = Json::array(), types = Json::object();
  uint64_t bytes = 0, parameters = 0;
  const auto add = [&](const std::string& name, const std::string& type, const std::vector<int64_t>& shape,
                       uint64_t tensor_bytes) {
    list.push_back({{"name", name}, {"type", type}, {"shape", shape}, {"bytes", tensor_bytes}});
    Json& total = types[type];
    if (total.is_null()) total = {{"tensors", 0}, {"bytes", 0}};
    total["tensors"] = total["tensors"].get<int64_t>() + 1;
    total["bytes"] = total["bytes"].get<uint64_t>() + tensor_bytes;
    bytes += tensor_bytes;
    uint64_t elements = 1;
    for (const int64_t extent : shape) elements *= static_cast<uint64_t>(extent);
    parameters += elements;
  };
  for (const auto& [name, tensor] : tensors) add(name, type_name(*tensor), tensor->shape(), tensor->num_bytes());
  for (const GgufUndecodable& tensor : undecodable) add(tensor.name, tensor.type, tensor.shape, tensor.bytes);
  out["parameters"] = parameters;
  out["tensor_bytes"] = bytes;
  out["types"] = types;
  out["tensors"] = list;
}

void add_family(const ModelFamily* family, const ModelConfig* config, Json& out) {
  out["family"] = family != nullptr ? Json(family->name) : Json();
  out["context_length"] = config != nullptr ? Json(config->context_length) : Json();
  out["config"] = config != nullptr ? config_json(*config) : Json();
}

Json gguf_tokenizer(const GgufMetadata& metadata) {
  const auto model = metadata.text("tokenizer.ggml.model");
  if (!model) return nullptr;
  const auto pre = metadata.text("tokenizer.ggml.pre");
  Json result = {{"kind", "gguf"}, {"model", *model}, {"pre", pre ? Json(*pre) : Json()}};
  if (const GgufArray* tokens = metadata.array("tokenizer.ggml.tokens")) result["tokens"] = tokens->count;
  return result;
}

Json inspect_gguf(const fs::path& path) {
  const Gguf file = read_gguf(path);
  const std::string architecture = GgufConfig(file).architecture();
  const ModelFamily* family = ModelRegistry::instance().find_gguf(architecture);
  Json out = {
      {"path", path.string()}, {"format", "gguf"}, {"gguf_version", file.version}, {"architecture", architecture}};
  if (family != nullptr) {
    const ModelConfig config = config_of_gguf(*family, file);
    add_family(family, &config, out);
  } else {
    add_family(nullptr, nullptr, out);
  }
  out["tokenizer"] = gguf_tokenizer(file.metadata);
  out["file_bytes"] = file.file->bytes().size();
  add_tensors(file.tensors, file.undecodable, out);
  return out;
}

Json inspect_directory(const fs::path& path) {
  const HfConfig hf = read_hf_config(path / "config.json");
  const ModelFamily* family = ModelRegistry::instance().find_hf(hf.architectures, hf.model_type);
  const std::string architecture = hf.architectures.empty() ? hf.model_type : hf.architectures.front();
  Json out = {{"path", path.string()}, {"format", "safetensors"}, {"architecture", architecture}};
  if (family != nullptr) {
    const ModelConfig config = config_of_directory(*family, hf, path);
    add_family(family, &config, out);
  } else {
    add_family(nullptr, nullptr, out);
  }
  out["tokenizer"] = file_exists(path / "tokenizer.json") ? Json({{"kind", "tokenizer.json"}}) : Json();
  const Safetensors files = read_safetensors_directory(path);
  out["file_bytes"] = files.file_bytes;
  add_tensors(files.tensors, {}, out);
  return out;
}

}  // namespace

std::string inspect_json(const std::string& name) {
  const fs::path path = name;
  const Json out = is_gguf_model(path) ? inspect_gguf(path) : inspect_directory(path);
  // Names in a file need not be valid UTF-8; the report must be.
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace atb
