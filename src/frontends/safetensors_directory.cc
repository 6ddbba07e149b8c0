// SPDX-License-Identifier: Apache-2.0
// Sharded safetensors: the index is checked as a whole before any shard is opened.
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>

#include "core/error.h"
#include "frontends/json_file.h"
#include "frontends/mapped_file.h"
#include "frontends/safetensors.h"

namespace atb {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "[safetensors]";

bool inside(const fs::path& path, const fs::path& directory) {
  const fs::path relative = path.lexically_relative(directory);
  return !relative.empty() && relative.begin()->string() != "..";
}

// The local Hugging Face cache keeps a model as <repo>/snapshots/<revision>/ of links into <repo>/blobs/.
fs::path blobs_of_snapshot(const fs::path& directory) {
  const fs::path snapshots = directory.parent_path();
  return snapshots.filename() == "snapshots" ? snapshots.parent_path() / "blobs" : fs::path();
}

// Throws unless `value` names a file in the directory itself; links may lead nowhere else. Opens nothing.
void check_shard_name(const fs::path& directory, const std::string& key, const std::string& value) {
  const auto refuse = [&](const std::string& reason) {
    throw_error(Code::kInvalidArgument, kWhere, " ", (directory / "model.safetensors.index.json").string(),
                ": weight_map[\"", key, "\"] = \"", value, "\" ", reason,
                "; must be a file name in the same directory");
  };
  if (value.empty()) refuse("is empty");
  if (value.find('\0') != std::string::npos) refuse("contains a zero byte");
  if (fs::path(value).is_absolute()) refuse("is an absolute path");
  if (value == "." || value == ".." || value.starts_with("../") || value.find("/../") != std::string::npos) {
    refuse("leads out of the model directory");
  }
  if (value.find('/') != std::string::npos || value.find('\\') != std::string::npos) refuse("is not a plain file name");

  std::error_code error;
  const fs::path path = directory / value;
  if (!fs::is_symlink(fs::symlink_status(path, error))) return;
  const fs::path target = fs::canonical(path, error);
  if (error) refuse("is a symbolic link to nothing");
  const fs::path home = fs::canonical(directory, error);
  const fs::path blobs = blobs_of_snapshot(home);
  if (!inside(target, home) && (blobs.empty() || !inside(target, blobs))) {
    refuse("is a symbolic link to " + target.string() + ", outside the model directory");
  }
}

// Tensor name -> shard file name.
std::map<std::string, std::string> read_index(const fs::path& directory) {
  const fs::path path = directory / "model.safetensors.index.json";
  const nlohmann::json index = read_json_file(path, kWhere, /*allow_duplicates=*/false);
  require(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(), Code::kDataLoss, kWhere,
          " ", path.string(), ": no object weight_map");
  std::map<std::string, std::string> shards;
  for (const auto& [key, value] : index["weight_map"].items()) {
    require(value.is_string(), Code::kDataLoss, kWhere, " ", path.string(), ": weight_map[\"", key,
            "\"] is not a string");
    check_shard_name(directory, key, value.get_ref<const std::string&>());
    shards.emplace(key, value.get<std::string>());
  }
  return shards;
}

Safetensors read_shards(const fs::path& directory) {
  const auto shard_of = read_index(directory);
  std::map<std::string, Safetensors> shards;
  for (const auto& [tensor, file] : shard_of) {
    if (shards.contains(file)) continue;
    require(file_exists(directory / file), Code::kNotFound, kWhere, " ", directory.string(), ": shard ", file,
            " is missing; the index places tensor ", tensor, " in it; download the model again");
    shards.emplace(file, read_safetensors(directory / file));
  }
  Safetensors result;
  for (const auto& [tensor, file] : shard_of) {
    const NamedTensors& tensors = shards.at(file).tensors;
    const auto found = tensors.find(tensor);
    require(found != tensors.end(), Code::kDataLoss, kWhere, " ", (directory / file).string(), ": no tensor ", tensor,
            ", although model.safetensors.index.json places it there");
    result.tensors.emplace(tensor, found->second);
  }
  for (auto& [file, shard] : shards) {
    result.tensors.insert(shard.tensors.begin(), shard.tensors.end());  // those the index does not list
    result.files.insert(result.files.end(), shard.files.begin(), shard.files.end());
    result.file_bytes += shard.file_bytes;
    if (result.metadata.empty()) result.metadata = shard.metadata;
  }
  return result;
}

}  // namespace

Safetensors read_safetensors_directory(const fs::path& directory) {
  if (file_exists(directory / "model.safetensors")) return read_safetensors(directory / "model.safetensors");
  if (file_exists(directory / "model.safetensors.index.json")) return read_shards(directory);
  const bool pickled =
      file_exists(directory / "pytorch_model.bin") || file_exists(directory / "pytorch_model.bin.index.json");
  throw_error(Code::kNotFound, kWhere, " ", directory.string(),
              ": neither model.safetensors nor model.safetensors.index.json",
              pickled ? "; pytorch_model.bin is not read: save the model again with safe_serialization=True" : "");
}

}  // namespace atb
