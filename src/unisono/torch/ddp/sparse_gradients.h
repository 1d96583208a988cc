#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace torch::nn {
class Module;
}

namespace unisono::ddp {

/// The weights of the module's Embedding and EmbeddingBag layers that were built with sparse(true).
[[nodiscard]] std::vector<at::Tensor> sparse_parameters(const torch::nn::Module& module);

/// Throws Error(kInvalidArgument) unless the parameter's gradient is undefined or has its type and
/// sizes; it may be dense, too: a weight that other layers use gets such a one.
void check_sparse_gradient(const NamedTensor& parameter);

/// The rows of a parameter's gradient, of which a sparse one does not have all: the numbers that
/// tell whether it is finite. Undefined of an undefined gradient.
[[nodiscard]] at::Tensor values_of(const at::Tensor& gradient);

/// The sum over the ranks of each parameter's gradient, by `divisor`, sparse, with the rows that
/// any rank has; the elements are those that an all_reduce of the dense gradients comes to.
/// `gradients` are sparse, dense, or undefined: no rows. A collective operation, of all ranks'
/// rows.
[[nodiscard]] std::vector<at::Tensor> average_sparse(
    ProcessGroup& group,
    const std::vector<NamedTensor>& parameters,
    const std::vector<at::Tensor>& gradients,
    double divisor,
    std::optional<std::chrono::milliseconds> timeout);

}  // namespace unisono::ddp
