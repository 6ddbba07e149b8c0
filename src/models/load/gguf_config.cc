// SPDX-License-Identifier: Apache-2.0
// Checked access to GGUF hyperparameters.
#include "models/load/gguf_config.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace atb {

GgufConfig::GgufConfig(const Gguf& file) : file_(file) {
  const auto architecture = file.metadata.text("general.architecture");
  require(architecture.has_value() && !architecture->empty(), Code::kDataLoss, "[gguf] ", file.file->path().string(),
          ": no general.architecture: not a model file");
  architecture_ = *architecture;
}

std::string GgufConfig::key(std::string_view name) const { return architecture_ + "." + std::string(name); }

bool GgufConfig::has(std::string_view name) const { return file_.metadata.has(key(name)); }

int64_t GgufConfig::size(std::string_view name, int64_t limit) const {
  const GgufValue* value = file_.metadata.find(key(name));
  if (value == nullptr) fail(name, "is missing");
  int64_t size = 0;
  if (const auto* array = std::get_if<GgufArray>(&value->value); array != nullptr && !array->raw.empty()) {
    size = array->integer(0);
    for (uint64_t i = 1; i < array->count; ++i) {
      if (array->integer(i) != size) {
        unsupported(name, "differs between layers (" + std::to_string(size) + " and " +
                              std::to_string(array->integer(i)) + "); only equal layers are supported");
      }
    }
  } else {
    size = *file_.metadata.integer(key(name));
  }
  if (size < 1 || size > limit) {
    fail(name, "is " + std::to_string(size) + ", must be from 1 to " + std::to_string(limit));
  }
  return size;
}

int64_t GgufConfig::size_or(std::string_view name, int64_t fallback, int64_t limit) const {
  return has(name) ? size(name, limit) : fallback;
}

double GgufConfig::positive(std::string_view name) const {
  const auto value = file_.metadata.real(key(name));
  if (!value) fail(name, "is missing");
  if (!std::isfinite(*value) || *value <= 0.0) {
    fail(name, "is " + std::to_string(*value) + ", must be a finite number above 0");
  }
  return *value;
}

double GgufConfig::positive_or(std::string_view name, double fallback) const {
  return has(name) ? positive(name) : fallback;
}

void GgufConfig::add_id(std::string_view full_key, std::vector<int64_t>& ids) const {
  const auto id = file_.metadata.integer(full_key);
  if (id && *id >= 0 && *id <= INT32_MAX && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
}

void GgufConfig::fail(std::string_view name, const std::string& what) const {
  throw_error(Code::kInvalidArgument, "[gguf] ", file_.file->path().string(), ": ", key(name), " ", what);
}

void GgufConfig::unsupported(std::string_view name, const std::string& what) const {
  throw_error(Code::kUnsupported, "[gguf] ", file_.file->path().string(), ": ", key(name), " ", what);
}

}  // namespace atb
