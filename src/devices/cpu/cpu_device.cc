// SPDX-License-Identifier: Apache-2.0
// The CPU: kernels come from the operators' own files.
#include "core/thread_team.h"
#include "devices/device.h"
#include "ir/op.h"
#include "kernels/target.h"

namespace atb {
namespace {

class CpuDevice final : public Device {
 public:
  std::string_view name() const override { return "cpu"; }

  std::string description() const override {
    return "CPU, " + std::string(cpu_target_name()) + ", " + std::to_string(available_cpus()) + " threads";
  }

  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) const override {
    require_cpu_target();
    const OpDef& op = request.node.op();
    return op.make_cpu_kernel ? op.make_cpu_kernel(request) : nullptr;
  }
};

}  // namespace

void register_device_cpu(DeviceRegistry& registry) { registry.add(std::make_unique<CpuDevice>()); }

}  // namespace atb
