// SPDX-License-Identifier: Apache-2.0
// Hub names in the local Hugging Face cache: models--org--name/refs/main names a snapshot.
#include "models/resolve.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "core/error.h"
#include "frontends/mapped_file.h"

namespace atb {
namespace {

namespace fs = std::filesystem;

// Value of an environment variable, empty if it is not set.
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Letters, digits and -_. as the hub allows; never a path that leads elsewhere.
bool is_plain_name(std::string_view text) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  return !text.empty() && text.front() != '.' && std::all_of(text.begin(), text.end(), allowed);
}

bool is_hub_name(const std::string& name) {
  const size_t slash = name.find('/');
  return slash != std::string::npos && is_plain_name(name.substr(0, slash)) && is_plain_name(name.substr(slash + 1));
}

// The snapshot that refs/main names; empty if there is none.
fs::path main_snapshot(const fs::path& repository) {
  const fs::path ref = repository / "refs" / "main";
  if (!file_exists(ref)) return {};
  std::string revision = read_text_file(ref, "[model]", 4096);
  while (!revision.empty() && std::isspace(static_cast<unsigned char>(revision.back()))) revision.pop_back();
  if (!is_plain_name(revision)) return {};
  const fs::path snapshot = repository / "snapshots" / revision;
  return file_exists(snapshot) ? snapshot : fs::path();
}

}  // namespace

std::string model_cache_directory() {
  if (const std::string hub = environment("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return (fs::path(home) / "hub").string();
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) {
    return (fs::path(cache) / "huggingface" / "hub").string();
  }
  return (fs::path(environment("HOME")) / ".cache" / "huggingface" / "hub").string();
}

std::string resolve_model_path(const std::string& name) {
  require(!name.empty(), Code::kInvalidArgument,
          "[model] the model's name is empty; give a directory, a .gguf file or ", "org/name");
  if (file_exists(name)) return name;
  require(is_hub_name(name), Code::kNotFound, "[model] ", name,
          " does not exist; give a directory, a .gguf file or the ",
          "hub name (org/name) of a model in the local cache");
  std::string folder = "models--" + name;
  folder.replace(folder.find('/'), 1, "--");
  const fs::path cache = model_cache_directory();
  const fs::path snapshot = main_snapshot(cache / folder);
  require(!snapshot.empty(), Code::kNotFound, "[model] ", name, " is neither a path nor in the local cache ",
          cache.string(), "; get it with: hf download ", name);
  return snapshot.string();
}

}  // namespace atb
