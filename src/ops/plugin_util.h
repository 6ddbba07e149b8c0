// SPDX-License-Identifier: Apache-2.0
// Kernels of external nodes that come in shared libraries (include/atb/plugin.h): one registry for the process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "atb/plugin.h"
#include "ir/kernel.h"

namespace atb {

// Adds the kernels of a library, and returns their names; one that is loaded already gives its names again. kNotFound
// if it cannot be opened, kInvalidArgument if it is no plugin, is made for another version of the interface, or has a
// name that another library has taken. The library stays loaded.
std::vector<std::string> load_library(const std::string& path);

// Kernels that run before and after an item of a block; empty: none.
struct PluginSteps {
  std::string before;
  std::string after;
};
struct PluginLibrary {
  PluginSteps at_pre;   // at points pre_X
  PluginSteps at_post;  // at points post_X
};

// Loads a library, and says which of its kernels run where: those named, else those whose names end in "preprocess" and
// "postprocess", else the only one. kInvalidArgument where there is no such kernel or several.
PluginLibrary load_block_plugin(const std::string& path, const std::string& preprocess, const std::string& postprocess);

// Adds kernels that are linked in. As above; `where` names them in errors.
std::vector<std::string> add_plugin(const atb_plugin& plugin, const std::string& where);

// The kernel that an external node asks for by `kernel`, or, if it asks for none, by `target`; null if there is none.
const atb_kernel* find_plugin(const Node& external);

// That kernel for the executor; null if there is none. kUnsupported, with its reason, if it does not take the operands.
std::unique_ptr<Kernel> make_plugin_kernel(const KernelRequest& request);

}  // namespace atb
