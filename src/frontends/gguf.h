// SPDX-License-Identifier: Apache-2.0
// GGUF files, versions 2 and 3, little endian (github.com/ggml-org/ggml/blob/master/docs/gguf.md): typed metadata, then
// tensor descriptions, then aligned tensor data.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frontends/gguf_metadata.h"
#include "frontends/mapped_file.h"
#include "frontends/named_tensors.h"

namespace atb {

// A tensor of a type that this build does not decode: listed, never loaded.
struct GgufUndecodable {
  std::string name;
  std::string type;  // "Q6_K", or "number 77"
  std::vector<int64_t> shape;
  uint64_t bytes = 0;  // 0 where the type is not known
};

struct Gguf {
  std::shared_ptr<const MappedFile> file;  // metadata strings point into it
  uint32_t version = 0;
  GgufMetadata metadata;
  NamedTensors tensors;  // shapes row-major: dimensions reversed, so that a weight is [out, in]
  std::vector<GgufUndecodable> undecodable;
};

// kDataLoss: anything that does not fit the file, with the place, the count and what is left. kUnsupported: another
// version, a big-endian file. No count or length of the file is believed before it is checked against the bytes that
// are left.
Gguf read_gguf(const std::filesystem::path& path);
Gguf read_gguf(std::shared_ptr<const MappedFile> file);

// kUnsupported naming tensor and type if one is not of F32, F16, BF16, Q8_0, Q4_0, Q4_1: such a file can be listed, not
// loaded.
void require_decodable(const Gguf& gguf);

// Shape of a tensor, decodable or not; null if there is none of this name.
const std::vector<int64_t>* find_shape(const Gguf& gguf, std::string_view name);

// True if the file starts with the letters GGUF. False too if it cannot be read.
bool is_gguf_file(const std::filesystem::path& path);

}  // namespace atb
