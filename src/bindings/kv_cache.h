// SPDX-License-Identifier: Apache-2.0
// Python class of the KV cache of compiled graphs.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "core/dtype.h"

namespace atb {

// The dtype of a cache by name. kInvalidArgument for one that caches cannot have.
DType kv_dtype_named(const std::string& name);

void bind_kv_cache(nanobind::module_& module);

}  // namespace atb
