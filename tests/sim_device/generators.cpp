#include <vector>

#include <ATen/CPUGeneratorImpl.h>

#include "sim_device/machine.h"
#include "sim_device/torch_device.h"

namespace sim {
namespace {

/// The CPU's generator under the name of a device. The host advances its state in the order of the
/// calls; tasks get copies.
struct DeviceGenerator final : at::CPUGeneratorImpl {
  explicit DeviceGenerator(int device) {
    device_ = {kDeviceType, static_cast<c10::DeviceIndex>(device)};
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

}  // namespace

at::Generator make_generator(int device) {
  return at::make_generator<DeviceGenerator>(device < 0 ? current_device() : device);
}

const at::Generator& default_generator(int device) {
  static const auto* const generators = [] {
    auto* made = new std::vector<at::Generator>;
    for (int index = 0; index < kDeviceCount; ++index) {
      made->push_back(make_generator(index));
    }
    return made;
  }();
  return generators->at(static_cast<std::size_t>(device < 0 ? current_device() : device));
}

}  // namespace sim
