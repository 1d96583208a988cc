#pragma once

#include <string>

#include <c10/core/Device.h>

#include "unisono/base/config.h"

namespace unisono {

/// Returns this rank's device: the accelerator of LibTorch (CUDA, ROCm, XPU, ...) with the number
/// LOCAL_RANK; the CPU if this process has no accelerator. If the node has more ranks than devices,
/// the numbers start again at 0, and a warning names the shared device. Without LOCAL_RANK, the
/// variable of the launcher counts; without a launcher, the number is 0. A local call, which does
/// not change the current device.
///
///     const at::Device device = unisono::local_device();
///     model->to(device);
///
/// Throws Error(kInvalidArgument) for an invalid variable.
[[nodiscard]] at::Device local_device();

/// As local_device(), for the variables of `environment` and `n_devices` devices of `type`.
[[nodiscard]] at::Device local_device(const Environment& environment,
                                      at::DeviceType type,
                                      int n_devices);

}  // namespace unisono
