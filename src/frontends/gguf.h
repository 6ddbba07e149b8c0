// SPDX-License-Identifier: Apache-2.0
// GGUF files, versions 2 and 3, little endian (github.com/ggml-org/ggml/blob/master/docs/gguf.md): typed metadata, then
// tensor descriptions, then aligned tensor data.
#pragma once

#include <filesystem>
#include <memory>

#include "frontends/gguf_metadata.h"
#include "frontends/mapped_file.h"
#include "frontends/named_tensors.h"

namespace atb {

struct Gguf {
  std::shared_ptr<const MappedFile> file;  // metadata strings point into it
  uint32_t version = 0;
  GgufMetadata metadata;
  NamedTensors tensors;  // shapes row-major: dimensions reversed, so that a weight is [out, in]
};

// kDataLoss: anything that does not fit the file, with the place, the count and what is left. kUnsupported: another
// version, a big-endian file, a tensor type other than F32, F16, BF16, Q8_0, Q4_0, Q4_1 (naming tensor and type).
// No count or length of the file is believed before it is checked against the bytes that are left.
Gguf read_gguf(const std::filesystem::path& path);

// True if the file starts with the letters GGUF. False too if it cannot be read.
bool is_gguf_file(const std::filesystem::path& path);

}  // namespace atb
