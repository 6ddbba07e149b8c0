// SPDX-License-Identifier: Apache-2.0
// What is in a model: family, configuration, tensors, sizes, tokenizer.
#pragma once

#include <string>

namespace atb {

// One JSON object: path, format, architecture, family (null if this build has none), context_length, tokenizer {kind,
// model, pre}, config, parameters, tensor_bytes, file_bytes, types {type: {tensors, bytes}}, tensors [{name, type,
// shape, bytes}]. `path` is a directory or a .gguf file. Errors as of load_model; a family or tensor type that this
// build has not is listed all the same.
std::string inspect_json(const std::string& path);

}  // namespace atb
