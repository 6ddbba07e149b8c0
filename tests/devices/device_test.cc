// SPDX-License-Identifier: Apache-2.0
// The registry of devices, and looking one up by name.
#include "devices/device.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"

namespace atb {
namespace {

class Named final : public Device {
 public:
  std::string_view name() const override { return "named"; }
  std::string description() const override { return "named: has no kernels"; }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest&) const override { return nullptr; }
};

TEST(Devices, EachFolderRegistersItsOwn) {
  std::vector<std::string> names;
  for (const Device* device : devices()) {
    names.emplace_back(device->name());
    EXPECT_EQ(&find_device(device->name()), device);
    EXPECT_FALSE(device->description().empty());
  }
  for (const char* name : {"cpu", "null"}) EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
}

TEST(Devices, OneDeviceAName) {
  DeviceRegistry registry;
  registry.add(std::make_unique<Named>());
  EXPECT_THROW(registry.add(std::make_unique<Named>()), Error);
  EXPECT_EQ(registry.all().size(), 1u);
}

TEST(Devices, NamesSayWhatThisBuildHas) {
  EXPECT_EQ(find_device("cpu").name(), "cpu");
  EXPECT_EQ(find_device("cpu:0").name(), "cpu");
  EXPECT_THROW(find_device("cpu:1"), Error);
  EXPECT_THROW(find_device("cpu:x"), Error);
  EXPECT_THROW(find_device("toaster"), Error);
  for (const char* name : {"cuda:0", "npu:0"}) {
    try {
      find_device(name);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kUnsupported);
      EXPECT_NE(std::string(error.what()).find("has: cpu"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace atb
