// SPDX-License-Identifier: Apache-2.0
#include "api/graph_plugins.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/error.h"
#include "core/join.h"
#include "ops/plugin_util.h"

namespace atb {

struct Plugin::Impl {
  PluginLibrary library;
  std::atomic<bool> enabled{true};
};

Plugin::Plugin(const std::string& path, const std::string& preprocess, const std::string& postprocess)
    : impl_(new Impl{.library = load_block_plugin(path, preprocess, postprocess)}) {}
Plugin::~Plugin() = default;
void Plugin::set_enabled(bool enabled) { impl_->enabled = enabled; }
bool Plugin::enabled() const { return impl_->enabled; }

struct PluginHandle::Registration {
  std::string point;
  std::shared_ptr<Plugin> plugin;
  PluginSteps steps;
  std::atomic<bool> removed{false};
};

PluginHandle::PluginHandle(std::shared_ptr<Registration> registration) : registration_(std::move(registration)) {}
void PluginHandle::remove() { registration_->removed = true; }

PluginHandle GraphPlugins::add(const std::string& point, std::shared_ptr<Plugin> plugin,
                               const std::vector<std::string>& points) {
  require(std::find(points.begin(), points.end(), point) != points.end(), Code::kInvalidArgument, "[plugin] ", point,
          " is no point of this block; points are ", join(points));
  require(plugin != nullptr, Code::kInvalidArgument, "[plugin] ", point, ": no plugin is given");
  const PluginLibrary& library = plugin->impl_->library;
  const PluginSteps steps = point.starts_with("pre_") ? library.at_pre : library.at_post;
  require(!steps.before.empty() || !steps.after.empty(), Code::kInvalidArgument, "[plugin] ", point,
          ": the plugin would do nothing; it needs a kernel for postprocess, which is all that this point calls");
  auto made = std::make_shared<PluginHandle::Registration>();
  made->point = point;
  made->plugin = std::move(plugin);
  made->steps = steps;
  const std::lock_guard held(mutex_);
  all_.push_back(made);
  return PluginHandle(std::move(made));
}

std::vector<BlockPlugin> GraphPlugins::active(int64_t layer) const {
  const std::lock_guard held(mutex_);
  std::vector<BlockPlugin> plugins;
  for (const auto& one : all_) {
    if (one->removed || !one->plugin->enabled()) continue;
    plugins.push_back({.point = one->point,
                       .before = one->steps.before,
                       .after = one->steps.after,
                       .within = {},
                       .told = true,
                       .layer = layer});
  }
  return plugins;
}

}  // namespace atb
