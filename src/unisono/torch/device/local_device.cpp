#include "unisono/torch/device/local_device.h"

#include <optional>
#include <string>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "unisono/base/error.h"
#include "unisono/rendezvous/local_rank.h"

namespace unisono {
namespace {

[[noreturn]] void reject(const Environment& environment,
                         int local_rank,
                         at::DeviceType type,
                         int n_devices) {
  const std::string name = at::DeviceTypeName(type, /*lower_case=*/true);
  const std::optional<std::string> visible = environment("CUDA_VISIBLE_DEVICES");
  throw Error(ErrorCode::kInvalidArgument,
              "local_device: LOCAL_RANK is " + std::to_string(local_rank) +
                  ", but this process has " + std::to_string(n_devices) + " device" +
                  (n_devices == 1 ? "" : "s") + " of type " + name + " (CUDA_VISIBLE_DEVICES is " +
                  (visible ? "\"" + *visible + "\"" : "not set") +
                  "); start no more ranks on a node than it has devices, or let "
                  "CUDA_VISIBLE_DEVICES list a device for each rank of the node");
}

}  // namespace

at::Device local_device(const Environment& environment, at::DeviceType type, int n_devices) {
  if (n_devices == 0) {
    return at::kCPU;
  }
  const int local_rank = rendezvous::own_local_rank(environment).value_or(0);
  if (local_rank >= n_devices) {
    reject(environment, local_rank, type, n_devices);
  }
  return {type, static_cast<at::DeviceIndex>(local_rank)};
}

at::Device local_device() {
  const std::optional<at::DeviceType> type = at::getAccelerator();
  const int n_devices = type ? c10::impl::VirtualGuardImpl(*type).deviceCount() : 0;
  return local_device(process_environment(), type.value_or(at::kCPU), n_devices);
}

}  // namespace unisono
