// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/cpu_device.h"

#include "core/thread_team.h"
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

const Device& cpu_device() {
  static const CpuDevice device;
  return device;
}

}  // namespace atb
