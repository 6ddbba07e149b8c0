// SPDX-License-Identifier: Apache-2.0
// Code of one's own inside a GraphOp: kernels of a shared library (atb/plugin.h) at a point of the block.
#pragma once

#include <memory>
#include <string>

#include "atb/export.h"

namespace atb {

// Kernels that run inside the launch of every block that they are registered with.
class ATB_API Plugin {
 public:
  // Loads a library; it stays loaded. `preprocess`, `postprocess`: names of its kernels. Where neither is given, those
  // that end so; the only kernel of a library runs before the item at pre_X points and after it at post_X points.
  // kNotFound where it cannot be opened, kInvalidArgument where it is no plugin, was made for another version of the
  // interface, or has no such kernel.
  explicit Plugin(const std::string& path, const std::string& preprocess = {}, const std::string& postprocess = {});
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  // Calls from now on go with it, or as if it were not registered. At first it is enabled.
  void set_enabled(bool enabled);
  bool enabled() const;

 private:
  friend class GraphPlugins;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A registration. It may outlive its block.
class ATB_API PluginHandle {
 public:
  // Calls from now on go without the plugin. A second time does nothing.
  void remove();

 private:
  friend class GraphPlugins;
  struct Registration;
  explicit PluginHandle(std::shared_ptr<Registration> registration);
  std::shared_ptr<Registration> registration_;
};

}  // namespace atb
