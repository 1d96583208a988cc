#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/ddp/replica.h"
#include "unisono/torch/tensor/agreement.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// What must be the same on every rank of a model: options, parameters and buffers. `sparse` are
/// the parameters whose gradients may be. Throws Error(kInvalidArgument) for a tensor that can't be
/// wrapped.
[[nodiscard]] std::vector<Property> properties_of(const std::vector<NamedTensor>& parameters,
                                                  const std::vector<NamedTensor>& buffers,
                                                  const std::vector<at::Tensor>& sparse,
                                                  const DistributedDataParallelOptions& options);

/// Of each parameter, whether its gradients may be sparse, as those of `sparse`. Throws
/// Error(kInvalidArgument) where they must be dense, with logical ranks.
[[nodiscard]] std::vector<bool> find_sparse(const std::vector<NamedTensor>& parameters,
                                            const std::vector<at::Tensor>& sparse,
                                            int logical_ranks);

/// Whether the tensor is one of them.
[[nodiscard]] bool holds(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor);

}  // namespace unisono::ddp
