// SPDX-License-Identifier: Apache-2.0
// Safetensors files (huggingface.co/docs/safetensors): a length, a JSON header, then the data of all tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frontends/mapped_file.h"
#include "frontends/named_tensors.h"

namespace atb {

struct Safetensors {
  NamedTensors tensors;                         // views of the mapped files
  std::map<std::string, std::string> metadata;  // __metadata__ of the first file
  std::vector<std::filesystem::path> files;
  uint64_t file_bytes = 0;
};

// Longest header that is read. The reference library stops at 100,000,000 bytes, but a published model has one of
// 132,095,296; a header is parsed in one pass and must lie in the file, so a length costs no memory that the file does
// not hold. The cap, twice the longest one known, only keeps other files from being parsed as JSON for minutes.
constexpr uint64_t kMaxSafetensorsHeader = uint64_t{1} << 28;

// One file. Refused with the reason, the tensor and the numbers (kDataLoss): a cut file, a longer header than that,
// offsets outside the file, overlaps, holes, duplicate names, a span that disagrees with the shape. kUnsupported:
// element types this build has not. Empty tensors are fine.
Safetensors read_safetensors(const std::filesystem::path& file);
Safetensors read_safetensors(const std::shared_ptr<const MappedFile>& file);

// A model directory: model.safetensors, or the shards of model.safetensors.index.json. Shard names must be plain file
// names inside the directory; all are checked before any shard is opened (kInvalidArgument naming key and value).
Safetensors read_safetensors_directory(const std::filesystem::path& directory);

}  // namespace atb
