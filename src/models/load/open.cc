// SPDX-License-Identifier: Apache-2.0
// From files to a family and a configuration.
#include "models/load/open.h"

#include <algorithm>
#include <cctype>
#include <system_error>

#include "core/error.h"
#include "core/join.h"
#include "models/load/gguf_config.h"

namespace atb {
namespace {

namespace fs = std::filesystem;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Classes are named after the model type: gpt_neox -> GPTNeoXForCausalLM.
bool named_after(const std::string& architecture, const std::string& model_type) {
  const auto letters = [](const std::string& text) {
    std::string result;
    for (const char c : text) {
      if (c != '_' && c != '-') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return result;
  };
  return letters(architecture).starts_with(letters(model_type));
}

// All names that some member of the registered families lists.
std::string supported(std::vector<std::string> ModelFamily::*names) {
  std::vector<std::string> all;
  for (const ModelFamily& family : ModelRegistry::instance().all()) {
    all.insert(all.end(), (family.*names).begin(), (family.*names).end());
  }
  return join(all);
}

}  // namespace

HfConfig read_hf_config(const fs::path& path) { return hf_config(ConfigJson::read(path)); }

HfConfig hf_config(const ConfigJson& root) {
  const auto text = root.child("text_config");
  return {root.texts("architectures"), root.text_or("model_type", ""), text ? *text : root};
}

const ModelFamily& family_of(const HfConfig& config, const fs::path& path) {
  const ModelFamily* family = ModelRegistry::instance().find_hf(config.architectures, config.model_type);
  if (family != nullptr) return *family;
  const std::string what = config.architectures.empty() ? "model_type \"" + config.model_type + "\""
                                                        : "architecture " + join(config.architectures);
  throw_error(Code::kUnsupported, "[config] ", path.string(), ": ", what,
              " is not supported; supported: ", supported(&ModelFamily::hf_architectures));
}

std::string contradiction(const ModelFamily& family, const HfConfig& config) {
  if (config.architectures.empty() || config.model_type.empty()) return "";
  const auto is_named = [&](const std::string& name) { return named_after(name, config.model_type); };
  const auto any_named = [&](const std::vector<std::string>& names) {
    return std::any_of(names.begin(), names.end(), is_named);
  };
  const bool known = contains(family.hf_model_types, config.model_type);
  const bool of_another = any_named(family.hf_architectures) && !any_named(config.architectures);
  if (known && !of_another) return "";
  return "config.json: model_type \"" + config.model_type + "\" contradicts architectures " +
         join(config.architectures) + "; the architecture decides, check where the file comes from";
}

const ModelFamily& family_of(const Gguf& file) {
  const GgufConfig config(file);
  const ModelFamily* family = ModelRegistry::instance().find_gguf(config.architecture());
  require(family != nullptr, Code::kUnsupported, "[gguf] ", file.file->path().string(), ": architecture ",
          config.architecture(), " is not supported; supported: ", supported(&ModelFamily::gguf_architectures));
  return *family;
}

ModelConfig config_of_directory(const ModelFamily& family, const HfConfig& config, const fs::path& directory) {
  ModelConfig result = family.config_from_hf(config.text);
  result.family = family.name;
  const fs::path generation = directory / "generation_config.json";
  if (!file_exists(generation)) return result;
  const ConfigJson defaults = ConfigJson::read(generation);
  if (defaults.has("bos_token_id")) result.bos_ids = defaults.ids_or("bos_token_id", {});
  if (defaults.has("eos_token_id")) result.eos_ids = defaults.ids_or("eos_token_id", {});
  return result;
}

ModelConfig config_of_gguf(const ModelFamily& family, const Gguf& file) {
  ModelConfig result = family.config_from_gguf(GgufConfig(file));
  result.family = family.name;
  return result;
}

bool is_gguf_model(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  require(fs::exists(status), Code::kNotFound, "[model] ", path.string(), " does not exist");
  if (fs::is_directory(status)) return false;
  require(is_gguf_file(path), Code::kInvalidArgument, "[model] ", path.string(),
          " is neither a directory nor a GGUF file; give a Hugging Face model directory or a .gguf file");
  return true;
}

}  // namespace atb
