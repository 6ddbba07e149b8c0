// SPDX-License-Identifier: Apache-2.0
// config.json, field by field: each used field is checked, and an error names it. Unused fields may hold anything.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atb {

// Largest size that a configuration may give (rows of a matrix, tokens of a context).
constexpr int64_t kMaxConfigSize = (int64_t{1} << 31) - 1;

class ConfigJson {
 public:
  // kNotFound / kDataLoss for a missing or broken file.
  static ConfigJson read(const std::filesystem::path& path);
  static ConfigJson parse(std::string_view text);  // the same of a text

  bool has(const std::string& key) const;      // present and not null
  bool has_key(const std::string& key) const;  // present, maybe null
  // Fields without a default are required. kInvalidArgument "[config] path: field: actual, allowed" for a wrong kind, a
  // size below 1 or above `limit`, a number that is not finite and positive.
  int64_t size(const std::string& key, int64_t limit = kMaxConfigSize) const;
  int64_t size_or(const std::string& key, int64_t fallback, int64_t limit = kMaxConfigSize) const;
  double positive(const std::string& key) const;
  double positive_or(const std::string& key, double fallback) const;
  bool flag_or(const std::string& key, bool fallback) const;
  std::string text_or(const std::string& key, const std::string& fallback) const;
  std::vector<std::string> texts(const std::string& key) const;  // empty where absent
  // An id, a list of ids, or null (an empty list); `fallback` where absent. Negative ids mean none and are dropped.
  std::vector<int64_t> ids_or(const std::string& key, std::vector<int64_t> fallback) const;
  // An object; nullopt where absent or null.
  std::optional<ConfigJson> child(const std::string& key) const;

  // kInvalidArgument (or `unsupported`: kUnsupported) naming the field.
  [[noreturn]] void fail(const std::string& key, const std::string& what) const;
  [[noreturn]] void unsupported(const std::string& key, const std::string& what) const;

 private:
  struct Node;  // the parsed JSON
  ConfigJson(std::shared_ptr<const Node> node, std::string where, std::string prefix);
  std::shared_ptr<const Node> node_;
  std::string where_;   // "[config] path"
  std::string prefix_;  // "rope_scaling." inside a child
};

}  // namespace atb
