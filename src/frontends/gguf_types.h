// SPDX-License-Identifier: Apache-2.0
// Tensor types of GGUF files: names, block sizes, and which of them this build decodes.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace atb {

// A block of `block_elems` values takes `block_bytes` (github.com/ggml-org/ggml/blob/master/include/ggml.h and
// src/ggml-common.h).
struct GgufTensorType {
  uint32_t id;  // as in the file
  const char* name;
  uint32_t block_elems;
  uint32_t block_bytes;
  bool decodable;
  DType dtype;           // of decoded values; where decodable
  const char* encoding;  // for decodable block types, else null
};

// Null for a number that is not known.
const GgufTensorType* find_gguf_tensor_type(uint32_t id);

}  // namespace atb
