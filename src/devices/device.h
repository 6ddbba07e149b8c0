// SPDX-License-Identifier: Apache-2.0
// A device: what it can run, and the kernels it makes. The graph, the passes and the plan know no more of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"

namespace atb {

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;      // "cpu"
  virtual std::string description() const = 0;    // "CPU, AVX3_DL, 2 threads"
  virtual bool computes() const { return true; }  // false: its kernels leave results as they are
  // The kernel of an operator node. Null if this device has none for it; the plan then runs the operator's definition
  // in plain loops.
  virtual std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) const = 0;
};

// All devices of this build. Filled once by generated code: each folder src/devices/x defines
// `void register_device_x(DeviceRegistry&)`.
class DeviceRegistry {
 public:
  void add(std::unique_ptr<const Device> device);  // kInternal on a duplicate name
  std::vector<const Device*> all() const;          // in the order of their folders
  // The process-wide registry.
  static const DeviceRegistry& instance();

 private:
  std::vector<std::unique_ptr<const Device>> devices_;
};

// Those of the process-wide registry.
std::vector<const Device*> devices();

// Looks up "cpu", "cpu:0" or "null". kInvalidArgument for an unknown name, kUnsupported for a device that this build
// does not have ("cuda:0", "npu:0"); the message lists what it has and says what would be needed.
const Device& find_device(std::string_view name);

}  // namespace atb
