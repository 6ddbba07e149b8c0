// SPDX-License-Identifier: Apache-2.0
// Code outside the plan that computes a node: it runs between two launches, on the caller's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "core/tensor.h"
#include "ir/kernel.h"

namespace atb {

struct HostCall {
  const Node& node;
  std::span<const TensorView> inputs;   // to be read only, and during the call only; any strides
  std::span<const TensorView> outputs;  // dense; all elements must be written
  std::shared_ptr<const void> memory;   // keeps what the views point at alive, should someone hold on to them
};

// May throw: the run that called it ends with that exception, and the next run starts afresh.
using HostKernel = std::function<void(const HostCall&)>;

// By the name that external nodes ask for in their attribute `kernel`.
using HostKernels = std::map<std::string, HostKernel, std::less<>>;

// A host kernel's node in a plan: no unit is run by the workers.
std::unique_ptr<Kernel> make_host_marker(const Node& node);

}  // namespace atb
