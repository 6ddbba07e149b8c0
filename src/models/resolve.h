// SPDX-License-Identifier: Apache-2.0
// From what a user typed to a path: a path as it is, or a model of the local Hugging Face cache.
#pragma once

#include <string>

namespace atb {

// The local Hugging Face cache: HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. It need not exist.
std::string model_cache_directory();

// An existing path is returned as it is. "org/name" is looked up in the local cache, revision main. kNotFound says how
// to get the model; nothing is downloaded.
std::string resolve_model_path(const std::string& name);

}  // namespace atb
