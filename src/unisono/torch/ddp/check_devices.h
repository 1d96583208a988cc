#pragma once

#include <optional>
#include <vector>

#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// Throws Error(kInvalidArgument) unless a module with these parameters can be wrapped with the
/// options device_ids and output_device.
void check_devices(const std::vector<int>& device_ids,
                   std::optional<int> output_device,
                   const std::vector<NamedTensor>& parameters);

}  // namespace unisono::ddp
