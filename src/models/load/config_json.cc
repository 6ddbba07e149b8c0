// SPDX-License-Identifier: Apache-2.0
// Checked access to config.json.
#include "models/load/config_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "frontends/json_file.h"

namespace atb {
namespace {

using Json = nlohmann::json;

// A value for a message, cut short: files may hold anything.
std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

}  // namespace

struct ConfigJson::Node {
  Json json;

  static std::shared_ptr<const Node> object(Json json, const std::string& where) {
    require(json.is_object(), Code::kDataLoss, where, ": must be a JSON object");
    return std::make_shared<const Node>(Node{std::move(json)});
  }
};

ConfigJson::ConfigJson(std::shared_ptr<const Node> node, std::string where, std::string prefix)
    : node_(std::move(node)), where_(std::move(where)), prefix_(std::move(prefix)) {}

ConfigJson ConfigJson::read(const std::filesystem::path& path) {
  // The last of two equal keys wins, as for the Python readers of these files.
  const std::string where = "[config] " + path.string();
  return {Node::object(read_json_file(path, "[config]", /*allow_duplicates=*/true), where), where, ""};
}

ConfigJson ConfigJson::parse(std::string_view text) {
  const std::string where = "[config] text";
  return {Node::object(parse_json(text, where, /*allow_duplicates=*/true), where), where, ""};
}

bool ConfigJson::has(const std::string& key) const {
  const auto found = node_->json.find(key);
  return found != node_->json.end() && !found->is_null();
}

bool ConfigJson::has_key(const std::string& key) const { return node_->json.contains(key); }

int64_t ConfigJson::size(const std::string& key, int64_t limit) const {
  if (!has(key)) fail(key, "is missing");
  const Json& value = node_->json[key];
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
  if (!fits || value.get<int64_t>() < 1 || value.get<int64_t>() > limit) {
    fail(key, "is " + shown(value) + ", must be an integer from 1 to " + std::to_string(limit));
  }
  return value.get<int64_t>();
}

int64_t ConfigJson::size_or(const std::string& key, int64_t fallback, int64_t limit) const {
  return has(key) ? size(key, limit) : fallback;
}

double ConfigJson::positive(const std::string& key) const {
  if (!has(key)) fail(key, "is missing");
  const Json& value = node_->json[key];
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() <= 0.0) {
    fail(key, "is " + shown(value) + ", must be a finite number above 0");
  }
  return value.get<double>();
}

double ConfigJson::positive_or(const std::string& key, double fallback) const {
  return has(key) ? positive(key) : fallback;
}

bool ConfigJson::flag_or(const std::string& key, bool fallback) const {
  if (!has(key)) return fallback;
  const Json& value = node_->json[key];
  if (!value.is_boolean()) fail(key, "is " + shown(value) + ", must be true or false");
  return value.get<bool>();
}

std::string ConfigJson::text_or(const std::string& key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  const Json& value = node_->json[key];
  if (!value.is_string()) fail(key, "is " + shown(value) + ", must be a string");
  return value.get<std::string>();
}

std::vector<std::string> ConfigJson::texts(const std::string& key) const {
  std::vector<std::string> result;
  if (!has(key)) return result;
  const Json& value = node_->json[key];
  if (!value.is_array()) fail(key, "is " + shown(value) + ", must be a list of strings");
  for (const Json& item : value) {
    if (!item.is_string()) fail(key, "holds " + shown(item) + ", must be a list of strings");
    result.push_back(item.get<std::string>());
  }
  return result;
}

std::vector<int64_t> ConfigJson::ids_or(const std::string& key, std::vector<int64_t> fallback) const {
  const auto found = node_->json.find(key);
  if (found == node_->json.end()) return fallback;
  const Json list = found->is_array() ? *found : found->is_null() ? Json::array() : Json::array({*found});
  std::vector<int64_t> ids;
  for (const Json& item : list) {
    if (!item.is_number_integer()) fail(key, "holds " + shown(item) + ", must be a token id or a list of token ids");
    if (item.is_number_unsigned() && item.get<uint64_t>() > uint64_t{kMaxConfigSize}) {
      fail(key, "holds " + shown(item) + ", at most " + std::to_string(kMaxConfigSize));
    }
    if (item.get<int64_t>() >= 0) ids.push_back(item.get<int64_t>());
  }
  return ids;
}

std::optional<ConfigJson> ConfigJson::child(const std::string& key) const {
  if (!has(key)) return std::nullopt;
  const Json& value = node_->json[key];
  if (!value.is_object()) fail(key, "is " + shown(value) + ", must be an object");
  return ConfigJson(std::make_shared<const Node>(Node{value}), where_, prefix_ + key + ".");
}

void ConfigJson::fail(const std::string& key, const std::string& what) const {
  throw_error(Code::kInvalidArgument, where_, ": ", prefix_, key, " ", what);
}

void ConfigJson::unsupported(const std::string& key, const std::string& what) const {
  throw_error(Code::kUnsupported, where_, ": ", prefix_, key, " ", what);
}

}  // namespace atb
