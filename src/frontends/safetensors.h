// SPDX-License-Identifier: Apache-2.0
// Safetensors files (huggingface.co/docs/safetensors): a length, a JSON header, then the data of all tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "frontends/named_tensors.h"

namespace atb {

struct Safetensors {
  NamedTensors tensors;                         // views of the mapped files
  std::map<std::string, std::string> metadata;  // __metadata__ of the first file
  std::vector<std::filesystem::path> files;
  uint64_t file_bytes = 0;
};

// One file. Refused with the reason, the tensor and the numbers (kDataLoss): a cut file, a header above 100 MB (the
// limit of the reference library), offsets outside the file, overlaps, holes, duplicate names, a span that disagrees
// with the shape. kUnsupported: element types this build has not. Empty tensors are fine.
Safetensors read_safetensors(const std::filesystem::path& file);

// A model directory: model.safetensors, or the shards of model.safetensors.index.json. Shard names must be plain file
// names inside the directory; all are checked before any shard is opened (kInvalidArgument naming key and value).
Safetensors read_safetensors_directory(const std::filesystem::path& directory);

}  // namespace atb
