// SPDX-License-Identifier: Apache-2.0
// The plugins of a GraphOp in order of registration.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "atb/block_plugin.h"
#include "blocks/block.h"

namespace atb {

// Safe to call from several threads.
class GraphPlugins {
 public:
  // Registers a plugin at one of `points`; kInvalidArgument for what could never run.
  PluginHandle add(const std::string& point, std::shared_ptr<Plugin> plugin, const std::vector<std::string>& points);
  // Those that take part in a call, as the block builder takes them; `layer` is what they are told.
  std::vector<BlockPlugin> active(int64_t layer) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<PluginHandle::Registration>> all_;
};

}  // namespace atb
