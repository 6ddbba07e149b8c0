// SPDX-License-Identifier: Apache-2.0
#include "devices/device.h"

#include <charconv>

#include "core/error.h"

namespace atb {

void register_all_devices(DeviceRegistry& registry);  // generated

namespace {

std::string device_names() {
  std::string names;
  for (const Device* device : devices()) {
    if (!names.empty()) names += ", ";
    names += device->name();
  }
  return names;
}

}  // namespace

void DeviceRegistry::add(std::unique_ptr<const Device> device) {
  for (const auto& known : devices_) {
    require(known->name() != device->name(), Code::kInternal, "[device] ", device->name(), " is registered twice");
  }
  devices_.push_back(std::move(device));
}

std::vector<const Device*> DeviceRegistry::all() const {
  std::vector<const Device*> result;
  for (const auto& device : devices_) result.push_back(device.get());
  return result;
}

const DeviceRegistry& DeviceRegistry::instance() {
  static const DeviceRegistry& registry = *[] {
    auto* filled = new DeviceRegistry;  // never destroyed: programs may outlive static destruction
    register_all_devices(*filled);
    return filled;
  }();
  return registry;
}

std::vector<const Device*> devices() { return DeviceRegistry::instance().all(); }

const Device& find_device(std::string_view name) {
  const size_t colon = name.find(':');
  const std::string_view kind = name.substr(0, colon);
  int index = 0;
  if (colon != std::string_view::npos) {
    const std::string_view digits = name.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    require(error == std::errc() && end == digits.data() + digits.size() && index >= 0, Code::kInvalidArgument,
            "[device] '", name, "' is not KIND or KIND:INDEX; this build has: ", device_names());
  }
  for (const Device* device : devices()) {
    if (device->name() != kind) continue;
    require(index == 0, Code::kInvalidArgument, "[device] '", name, "': there is only ", kind, ":0");
    return *device;
  }
  throw_error(kind == "cuda" || kind == "npu" ? Code::kUnsupported : Code::kInvalidArgument, "[device] '", name,
              "' is no device of this build, which has: ", device_names());
}

}  // namespace atb
