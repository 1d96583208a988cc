#include "unisono/torch/device/local_device.h"

#include <optional>
#include <string>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "unisono/base/log.h"
#include "unisono/rendezvous/local_rank.h"

namespace unisono {
namespace {

void warn_of_shared_device(const Environment& environment, int local_rank, at::Device device) {
  const std::optional<std::string> visible = environment("CUDA_VISIBLE_DEVICES");
  base::Logger("local rank " + std::to_string(local_rank))
      .warning(
          "local_device: the node has more ranks than devices, so this rank shares " +
          device.str() + " with another (CUDA_VISIBLE_DEVICES is " +
          (visible ? "\"" + *visible + "\"" : "not set") +
          "); start no more ranks on a node than it has devices, unless the ranks are to share "
          "them");
}

}  // namespace

at::Device local_device(const Environment& environment, at::DeviceType type, int n_devices) {
  if (n_devices == 0) {
    return at::kCPU;
  }
  const int local_rank = rendezvous::own_local_rank(environment).value_or(0);
  const at::Device device(type, static_cast<at::DeviceIndex>(local_rank % n_devices));
  if (local_rank >= n_devices) {
    warn_of_shared_device(environment, local_rank, device);
  }
  return device;
}

at::Device local_device() {
  const std::optional<at::DeviceType> type = at::getAccelerator();
  const int n_devices = type ? c10::impl::VirtualGuardImpl(*type).deviceCount() : 0;
  return local_device(process_environment(), type.value_or(at::kCPU), n_devices);
}

}  // namespace unisono
