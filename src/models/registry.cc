// SPDX-License-Identifier: Apache-2.0
// The registry of model families.
#include <algorithm>

#include "core/error.h"
#include "models/model.h"

namespace atb {

void register_all_models(ModelRegistry& registry);  // generated

namespace {

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

void ModelRegistry::add(ModelFamily family) {
  require(find(family.name) == nullptr, Code::kInternal, "[models] family ", family.name, " is registered twice");
  families_.push_back(std::move(family));
}

const ModelFamily* ModelRegistry::find(std::string_view name) const {
  for (const ModelFamily& family : families_) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

const ModelFamily* ModelRegistry::find_hf(const std::vector<std::string>& architectures,
                                          const std::string& model_type) const {
  for (const ModelFamily& family : families_) {
    const bool matches = std::any_of(architectures.begin(), architectures.end(),
                                     [&](const std::string& name) { return contains(family.hf_architectures, name); });
    if (matches || (architectures.empty() && contains(family.hf_model_types, model_type))) return &family;
  }
  return nullptr;
}

const ModelFamily* ModelRegistry::find_gguf(std::string_view architecture) const {
  for (const ModelFamily& family : families_) {
    if (contains(family.gguf_architectures, architecture)) return &family;
  }
  return nullptr;
}

const ModelRegistry& ModelRegistry::instance() {
  static const ModelRegistry* registry = [] {
    auto* made = new ModelRegistry();
    register_all_models(*made);
    return made;
  }();
  return *registry;
}

}  // namespace atb
