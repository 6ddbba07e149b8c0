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
std::vector<std::string> load_plugin(const std::string& path);

// Adds kernels that are linked in. As above; `where` names them in errors.
std::vector<std::string> add_plugin(const atb_plugin& plugin, const std::string& where);

// The kernel that an external node asks for by `kernel`, or, if it asks for none, by `target`; null if there is none.
const atb_kernel* find_plugin(const Node& external);

// That kernel for the executor; null if there is none. kUnsupported, with its reason, if it does not take the operands.
std::unique_ptr<Kernel> make_plugin_kernel(const KernelRequest& request);

}  // namespace atb
