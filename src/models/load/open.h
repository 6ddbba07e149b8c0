// SPDX-License-Identifier: Apache-2.0
// Opens a model's files without building anything: what load_model, read_model_config and inspect share.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "frontends/gguf.h"
#include "frontends/safetensors.h"
#include "models/load/config_json.h"
#include "models/model.h"

namespace atb {

// The architectures of a config.json, and the fields that describe the language model: those of text_config where a
// model nests them (its values count, not the outer ones).
struct HfConfig {
  std::vector<std::string> architectures;
  std::string model_type;
  ConfigJson text;
};
HfConfig read_hf_config(const std::filesystem::path& config_json);
HfConfig hf_config(const ConfigJson& root);

// kUnsupported naming the architecture and those that this build has.
const ModelFamily& family_of(const HfConfig& config, const std::filesystem::path& path);
const ModelFamily& family_of(const Gguf& file);

// A warning where model_type names another model than the architectures do, else empty: fields are read as the
// architecture's, with the defaults of the model type, so that one of the two is wrong.
std::string contradiction(const ModelFamily& family, const HfConfig& config);

// With the stop tokens of generation_config.json where there is one.
ModelConfig config_of_directory(const ModelFamily& family, const HfConfig& config,
                                const std::filesystem::path& directory);
ModelConfig config_of_gguf(const ModelFamily& family, const Gguf& file);

// True for a GGUF file, false for a directory; kNotFound or kInvalidArgument for anything else.
bool is_gguf_model(const std::filesystem::path& path);

}  // namespace atb
