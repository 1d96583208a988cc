#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/ddp/options.h"
#include "unisono/torch/tensor/agreement.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// Throws Error(kInvalidArgument) for parameters of types other than f32 and f64: "with `option`
/// parameters must be f32 or f64, `reason`".
void check_wide_types(const std::vector<NamedTensor>& parameters,
                      const std::string& option,
                      const std::string& reason);

/// Throws Error(kInvalidArgument) unless a module with these parameters can be wrapped with the
/// options device_ids and output_device.
void check_devices(const std::vector<int>& device_ids,
                   std::optional<int> output_device,
                   const std::vector<NamedTensor>& parameters);

/// Returns the properties of a model that must be equal on every rank: options, parameters and
/// buffers. `sparse` lists the parameters that may have sparse gradients. Throws
/// Error(kInvalidArgument) for a tensor that cannot be wrapped, and for tensors on several devices.
[[nodiscard]] std::vector<Property> properties_of(const std::vector<NamedTensor>& parameters,
                                                  const std::vector<NamedTensor>& buffers,
                                                  const std::vector<at::Tensor>& sparse,
                                                  const DistributedDataParallelOptions& options);

/// Returns, for each parameter, whether its gradients may be sparse, which is whether `sparse`
/// contains the parameter. Throws Error(kInvalidArgument) for sparse gradients with logical ranks.
[[nodiscard]] std::vector<bool> find_sparse(const std::vector<NamedTensor>& parameters,
                                            const std::vector<at::Tensor>& sparse,
                                            int logical_ranks);

}  // namespace unisono::ddp
