// SPDX-License-Identifier: Apache-2.0
// The engine's choice of tokens, for callers that compute logits themselves.
#pragma once

#include <nanobind/nanobind.h>

namespace atb {

void bind_sampler(nanobind::module_& module);

}  // namespace atb
