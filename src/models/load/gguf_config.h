// SPDX-License-Identifier: Apache-2.0
// The configuration part of GGUF metadata: keys under the architecture's prefix, each checked, errors naming the key.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "frontends/gguf.h"

namespace atb {

class GgufConfig {
 public:
  explicit GgufConfig(const Gguf& file);  // kDataLoss without general.architecture

  const Gguf& file() const { return file_; }
  const std::string& architecture() const { return architecture_; }
  std::string key(std::string_view name) const;  // "llama.block_count" of "block_count"

  // Keys below are without prefix. Sizes must be in [1, limit]; an array (one value a layer) must hold one value only.
  bool has(std::string_view name) const;
  int64_t size(std::string_view name, int64_t limit) const;
  int64_t size_or(std::string_view name, int64_t fallback, int64_t limit) const;
  double positive(std::string_view name) const;
  double positive_or(std::string_view name, double fallback) const;
  // A token id under its whole key; appended to `ids` if present, valid and new.
  void add_id(std::string_view full_key, std::vector<int64_t>& ids) const;

  [[noreturn]] void fail(std::string_view name, const std::string& what) const;         // kInvalidArgument
  [[noreturn]] void unsupported(std::string_view name, const std::string& what) const;  // kUnsupported

 private:
  const Gguf& file_;
  std::string architecture_;
};

}  // namespace atb
