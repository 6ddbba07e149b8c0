// SPDX-License-Identifier: Apache-2.0
// A device whose kernels do nothing: plans, schedules and memory can be tested for models that no machine here could
// run.
#include "devices/device.h"

namespace atb {
namespace {

class NullKernel final : public Kernel {
 public:
  int64_t units(const Call&, int) const noexcept override { return 0; }
  double cost(const Call&, int) const noexcept override { return 0; }
  void run(const Call&, int, int64_t, int64_t, std::byte*) const noexcept override {}
  std::string variant(const Call&) const override { return "null"; }
};

class NullDevice final : public Device {
 public:
  std::string_view name() const override { return "null"; }
  std::string description() const override { return "null: plans everything, computes nothing"; }
  bool computes() const override { return false; }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest&) const override { return std::make_unique<NullKernel>(); }
};

}  // namespace

void register_device_null(DeviceRegistry& registry) { registry.add(std::make_unique<NullDevice>()); }

}  // namespace atb
